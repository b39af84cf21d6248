// Requests to this server.

/** Fetch JSON; throws the detail of a problem. */
export async function fetchJson<T>(path: string): Promise<T> {
  const response = await fetch(path, { headers: { Accept: "application/geo+json, application/json" } });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? response.statusText);
  return body as T;
}
