// What somebody writes with the client of everything.json. Lines after "@ts-expect-error" must not compile.
import createClient from "openapi-fetch";
import type { components, paths } from "./everything";

declare const process: { argv: string[] };
const [url, key] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

function is(what: string, got: unknown, want: unknown): void {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

const metadata: components["schemas"]["Metadata"] = { actor: { type: "clerk", id: "global" } };
const data: components["schemas"]["order.was_placed"] = {
  lines: [{ sku: "A", parts: [{ sku: "B" }] }],
  total: { amount: 12.5, currency: "EUR" },
};

// A write has one success.
const made = await client.POST("/order/_new/was_placed", { body: { data, metadata } });
if (!made.data) throw new Error(JSON.stringify(made.error));
is("length", made.data.length, 1);
const id: string = made.data.id ?? "";
const position: string = made.data.stream_id;

// What a dry run answers is a schema of its own.
const tried = await client.POST("/order/{id}/was_paid", {
  params: { path: { id }, query: { dry_run: true } },
  body: { data: { paid: { amount: 12.5, currency: "EUR" } }, metadata },
});
is("accepted", (tried.data as unknown as components["schemas"]["WriteDryRun"]).accepted, true);

// States and rows are typed.
const state = await client.GET("/order/{id}", { params: { path: { id } } });
const sku: string | undefined = state.data?.data.lines?.[0]?.sku;
is("state", [sku, state.data?.data.status, state.data?.data.by?.type], ["A", "open", "clerk"]);
const board = await client.GET("/_projections/board", { params: { query: { status: "open" } } });
is("rows", board.data?.rows.map((row) => row.data?.total?.amount), [12.5]);
const one = await client.GET("/_projections/board/{id}", { params: { path: { id } } });
is("row", one.data?.data.first, "A");

// An error says which.
const refused = await client.POST("/order/{id}/was_paid", { params: { path: { id } }, body: { data: { paid: { amount: 0, currency: "EUR" } }, metadata } });
is("error", refused.error?.code, "validation_failed");

// What listeners are told is one of several types.
export function told(message: components["schemas"]["order.was_paid"] | undefined): number | undefined {
  return message?.paid.amount;
}

// @ts-expect-error: the spec has no such agent type
export const nobody: components["schemas"]["Agent"] = { type: "nobody", id: "global" };
// @ts-expect-error: the total is missing
export const incomplete: components["schemas"]["order.was_placed"] = { lines: [] };
// @ts-expect-error: there is no such event type
void client.POST("/order/{id}/was_eaten", { params: { path: { id } }, body: { data, metadata } });

is("position", position.includes("-"), true);
console.log("ok");
