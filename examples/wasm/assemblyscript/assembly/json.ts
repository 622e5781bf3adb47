// Reads well-formed JSON in place, as far as this example needs it. A value is its text; one that does not exist is "".

function isSpace(c: i32): bool {
  return c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09;
}

/** The items of a list, or the members of an object; nothing for anything else. */
export function items(text: string): string[] {
  const out: string[] = [];
  const first = text.charCodeAt(0);
  if (first != 0x5b /* [ */ && first != 0x7b /* { */) return out;
  let depth = 0, from = 1, quoted = false;
  for (let i = 1; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (quoted) {
      if (c == 0x5c /* \ */) i++;
      else if (c == 0x22 /* " */) quoted = false;
    } else if (c == 0x22) {
      quoted = true;
    } else if (c == 0x5b || c == 0x7b) {
      depth++;
    } else if (c == 0x2c /* , */ && depth == 0) {
      out.push(text.substring(from, i).trim());
      from = i + 1;
    } else if (c == 0x5d /* ] */ || c == 0x7d /* } */) {
      if (depth == 0) {
        const last = text.substring(from, i).trim();
        if (last.length > 0) out.push(last);
        break;
      }
      depth--;
    }
  }
  return out;
}

/** A member of an object. */
export function get(text: string, name: string): string {
  if (text.charCodeAt(0) != 0x7b) return "";
  const members = items(text);
  const quoted = '"' + name + '"';
  for (let i = 0; i < members.length; i++) {
    if (!members[i].startsWith(quoted)) continue;
    let at = quoted.length;
    while (isSpace(members[i].charCodeAt(at))) at++;
    return members[i].substring(at + 1).trim(); // after the colon
  }
  return "";
}

/** A whole number in a range, or -1, which must not be in the range. */
export function whole(text: string, least: i64, most: i64): i64 {
  if (text.length == 0 || text.length > 18) return -1;
  let n: i64 = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return -1;
    n = n * 10 + (c - 0x30);
  }
  return n < least || n > most ? -1 : n;
}
