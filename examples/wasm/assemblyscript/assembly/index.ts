// A handler and an implication for j17. Memory is put back after each call, so nothing is freed.
import { get, items, whole } from "./json";

export function malloc(size: i32): i32 {
  return heap.alloc(size) as i32;
}

export function apply_handler(ptr: i32, len: i32): i64 {
  return answer(handle(String.UTF8.decodeUnsafe(ptr, len)));
}

export function compute_implications(ptr: i32, len: i32): i64 {
  return answer(imply(String.UTF8.decodeUnsafe(ptr, len)));
}

function answer(output: string): i64 {
  const bytes = String.UTF8.encode(output);
  return ((changetype<usize>(bytes) as i64) << 32) | (bytes.byteLength as i64);
}

function reject(code: string, field: string, message: string): string {
  return `{"error":{"type":"validation_failed","message":"${message}","code":"${code}","context":{"field":"${field}"}}}`;
}

/** Adds a line to an order and works out the totals, in cents. */
function handle(input: string): string {
  const state = get(input, "state"), data = get(get(input, "event"), "data");
  const quantity = whole(get(data, "quantity"), 1, 1000000);
  if (quantity < 0) return reject("INVALID_QUANTITY", "quantity", "The quantity has to be a whole number from 1 to 1000000.");
  const price = whole(get(data, "unit_price"), 0, 100000000);
  if (price < 0) return reject("INVALID_PRICE", "unit_price", "The unit price has to be a whole number of cents from 0 to 100000000.");
  const lineTotal = price * quantity;
  const total = max<i64>(whole(get(state, "total"), 0, i64.MAX_VALUE), 0) + lineTotal;
  const lines = items(get(state, "lines"));
  lines.push(`{"sku":${orNull(get(data, "sku"))},"unit_price":${price},"quantity":${quantity},"line_total":${lineTotal}}`);
  return `{"state":{"lines":[${lines.join(",")}],"total":${total}}}`;
}

/** Reserves every item of an order. */
function imply(input: string): string {
  const event = get(input, "event"), list = items(get(get(event, "data"), "items"));
  const actions: string[] = [];
  for (let i = 0; i < list.length; i++) {
    const id = orNull(get(list[i], "product_id")), quantity = orNull(get(list[i], "quantity"));
    actions.push(`{"emit":{"aggregate_type":"inventory","id":${id},"event_type":"was_reserved","data":{"quantity":${quantity},"order":${orNull(get(event, "key"))}}}}`);
  }
  return `{"actions":[${actions.join(",")}]}`;
}

function orNull(text: string): string {
  return text.length > 0 ? text : "null";
}
