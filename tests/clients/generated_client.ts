// Drives a venue with types that `openapi-typescript` made of its description (`./api`): `generated_client.js URL`.
// Expects a worker with the scripted model `echo`. Prints `ok` when everything was as it should be.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

type Job = components["schemas"]["Job"];

function expect(what: string, got: unknown, wanted: unknown): void {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) {
    throw new Error(`${what}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(got)}`);
  }
}

const client = createClient<paths>({ baseUrl: process.argv[2] });
const path = { id: "clerk" };
const body = { model: { provider: "scripted", name: "echo" } };
const applied = await client.PUT("/api/v1/agents/{id}", { params: { path }, body });
expect("apply", applied.data?.result, "created");
const sent = await client.POST("/api/v1/agents/{id}/tasks", {
  params: { path, query: { wait: true } },
  body: { input: "hello" },
});
const id = sent.data?.job ?? "";
const read = await client.GET("/api/v1/jobs/{id}", { params: { path: { id }, query: { wait: 30_000 } } });
const job: Job | undefined = read.data;
expect("job", [job?.status, job?.output], ["COMPLETE", "hello"]);
const list = await client.GET("/api/v1/jobs", { params: { query: { status: "COMPLETE" } } });
expect("list", list.data?.items, [id]);
const missing = await client.GET("/api/v1/jobs/{id}", { params: { path: { id: "0".repeat(32) } } });
expect("problem", missing.error?.status, 404);
await client.DELETE("/api/v1/agents/{id}", { params: { path } });
const agents = await client.GET("/api/v1/agents");
expect("deleted", agents.data?.agents, []);
console.log("ok");
