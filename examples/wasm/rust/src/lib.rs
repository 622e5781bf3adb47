//! A handler and an implication for j17. The rules are plain functions from JSON to JSON; `malloc` and the two entry points
//! are the way in and out. JSON is read by the small reader in `json.rs`; with `serde_json` at hand, use that.

mod json;

use json::Value;

/// Allocates the block for the input. Nothing is freed: j17 puts the memory back after each call.
/// (Its name is `malloc` in WebAssembly only, so that tests on the machine itself keep the machine's.)
#[cfg_attr(target_arch = "wasm32", export_name = "malloc")]
pub extern "C" fn allocate(size: usize) -> *mut u8 {
    let mut block = Vec::with_capacity(size.max(1));
    let ptr = block.as_mut_ptr();
    std::mem::forget(block);
    ptr
}

#[no_mangle]
pub extern "C" fn apply_handler(ptr: *const u8, len: usize) -> u64 {
    answer(ptr, len, handle)
}

#[no_mangle]
pub extern "C" fn compute_implications(ptr: *const u8, len: usize) -> u64 {
    answer(ptr, len, imply)
}

fn answer(ptr: *const u8, len: usize, rule: fn(Value) -> String) -> u64 {
    // j17 has written `len` bytes of JSON, which is UTF-8, at `ptr`.
    let input = unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(ptr, len)) };
    let output = rule(Value::new(input)).into_bytes().into_boxed_slice();
    let place = (output.as_ptr() as u64) << 32 | output.len() as u64;
    std::mem::forget(output);
    place
}

fn reject(code: &str, field: &str, message: &str) -> String {
    format!(
        r#"{{"error":{{"type":"validation_failed","message":"{message}","code":"{code}","context":{{"field":"{field}"}}}}}}"#
    )
}

/// Adds a line to an order and works out the totals, in cents.
fn handle(input: Value) -> String {
    let (state, data) = (input.get("state"), input.get("event").get("data"));
    let quantity = match data.get("quantity").whole() {
        Some(n) if (1..=1_000_000).contains(&n) => n,
        _ => return reject("INVALID_QUANTITY", "quantity", "The quantity has to be a whole number from 1 to 1000000."),
    };
    let price = match data.get("unit_price").whole() {
        Some(n) if (0..=100_000_000).contains(&n) => n,
        _ => {
            return reject(
                "INVALID_PRICE",
                "unit_price",
                "The unit price has to be a whole number of cents from 0 to 100000000.",
            )
        }
    };
    let line_total = price * quantity;
    let total = state.get("total").whole().unwrap_or(0) + line_total;
    let mut lines = String::new();
    for line in state.get("lines").items() {
        lines += line.text();
        lines += ",";
    }
    let sku = data.get("sku").text();
    format!(
        r#"{{"state":{{"lines":[{lines}{{"sku":{sku},"unit_price":{price},"quantity":{quantity},"line_total":{line_total}}}],"total":{total}}}}}"#
    )
}

/// Reserves every item of an order.
fn imply(input: Value) -> String {
    let event = input.get("event");
    let order = event.get("key").text();
    let mut actions = Vec::new();
    for item in event.get("data").get("items").items() {
        let (id, quantity) = (item.get("product_id").text(), item.get("quantity").text());
        actions.push(format!(
            r#"{{"emit":{{"aggregate_type":"inventory","id":{id},"event_type":"was_reserved","data":{{"quantity":{quantity},"order":{order}}}}}}}"#
        ));
    }
    format!(r#"{{"actions":[{}]}}"#, actions.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up() {
        let out = handle(Value::new(
            r#"{"state":{"lines":[],"total":5},"event":{"data":{"sku":"PEN","unit_price":10,"quantity":3}}}"#,
        ));
        assert_eq!(
            out,
            r#"{"state":{"lines":[{"sku":"PEN","unit_price":10,"quantity":3,"line_total":30}],"total":35}}"#
        );
    }

    #[test]
    fn rejects_quantities() {
        for quantity in ["0", "-5", "1.5", "\"1\"", "null", "1000001"] {
            let input = format!(r#"{{"state":{{}},"event":{{"data":{{"unit_price":1,"quantity":{quantity}}}}}}}"#);
            assert!(handle(Value::new(&input)).contains("INVALID_QUANTITY"), "{quantity}");
        }
    }
}
