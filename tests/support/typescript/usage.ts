// What an integrator writes with the generated types; tsc proves that the document has them.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const client = createClient<paths>({
  baseUrl: "https://hasat.example",
  headers: { Authorization: "Bearer hsk_..." },
});

export async function invoiceKind(identifier: string): Promise<string> {
  const { data, error } = await client.GET("/api/v1/check/{identifier}", {
    params: { path: { identifier } },
  });
  if (error) {
    const problem: components["schemas"]["Problem"] = error;
    throw new Error(`${problem.code}: ${problem.detail} (${problem.requestId})`);
  }
  return data.einvoice.registered ? (data.einvoice.sendTo ?? "") : data.invoiceKind;
}

export async function runs(job: string): Promise<number[]> {
  const { data } = await client.GET("/api/v1/runs", { params: { query: { job, limit: 10 } } });
  return data?.runs.map((run) => run.id) ?? [];
}

export async function approve(hold: number): Promise<void> {
  await client.POST("/api/v1/holds/{number}/approve", {
    params: { path: { number: hold } },
    body: { reason: "checked" },
  });
}
