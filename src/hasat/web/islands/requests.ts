// Asking this server.

/** The answer as JSON; what the server says is wrong becomes the error's message. */
export async function ask<T>(path: string): Promise<T> {
  const answer = await fetch(path, { headers: { Accept: "application/geo+json, application/json" } });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail ?? answer.statusText);
  return told as T;
}
