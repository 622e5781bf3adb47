//! Reads well-formed JSON in place, as far as this example needs it.

#[derive(Clone, Copy)]
pub struct Value<'a>(&'a str);

impl<'a> Value<'a> {
    pub fn new(text: &'a str) -> Self {
        Value(text.trim())
    }

    /// The JSON of the value; a value that does not exist is `null`.
    pub fn text(self) -> &'a str {
        if self.0.is_empty() {
            "null"
        } else {
            self.0
        }
    }

    pub fn whole(self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The items of a list, or the members of an object; nothing for anything else.
    pub fn items(self) -> Items<'a> {
        let inner = self.0.strip_prefix(['[', '{']).and_then(|s| s.strip_suffix([']', '}']));
        Items(inner.unwrap_or("").trim())
    }

    /// A member of an object, which does not exist if there is none.
    pub fn get(self, name: &str) -> Value<'a> {
        if self.0.starts_with('{') {
            for member in self.items() {
                let rest = member.0.strip_prefix('"').and_then(|s| s.strip_prefix(name));
                if let Some(rest) = rest.and_then(|s| s.strip_prefix('"')) {
                    return Value::new(rest.trim_start().trim_start_matches(':'));
                }
            }
        }
        Value("")
    }
}

pub struct Items<'a>(&'a str);

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let (mut depth, mut quoted, mut escaped) = (0, false, false);
        let end = self.0.bytes().position(|b| {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                b',' => return depth == 0,
                _ => {}
            }
            false
        });
        let (item, rest) = match end {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (self.0, ""),
        };
        self.0 = rest.trim();
        Some(Value::new(item))
    }
}
