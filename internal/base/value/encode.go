package value

// String returns the value as compact JSON, "" when it is missing.
func (v Value) String() string { return string(v.AppendJSON(nil)) }

// MarshalJSON returns the value as compact JSON, null when it is missing.
func (v Value) MarshalJSON() ([]byte, error) { return v.OrNull().AppendJSON(nil), nil }

// UnmarshalJSON reads a value under the rules of Parse.
func (v *Value) UnmarshalJSON(src []byte) error {
	parsed, err := Parse(src)
	if err == nil {
		*v = parsed
	}
	return err
}

// AppendJSON appends the value as compact JSON: no white space, numbers as they were written, members in order,
// strings with the fewest escapes. It appends nothing for a missing value.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.Kind() {
	case Missing:
		return dst
	case Null:
		return append(dst, "null"...)
	case Bool:
		if v.n == 1 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case Number:
		// What is no plain decimal is kept as it was written.
		if v.text() {
			return append(dst, v.num()...)
		}
		return appendDecimal(dst, v.coef(), v.scale())
	case String:
		return AppendString(dst, v.str())
	case Array:
		dst = append(dst, '[')
		for i, e := range v.array().elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.AppendJSON(dst)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		members := v.object().members
		for i := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, members[i].Key)
			dst = append(dst, ':')
			dst = members[i].Value.AppendJSON(dst)
		}
		return append(dst, '}')
	default:
		return dst
	}
}

// AppendString appends s as a JSON string with the fewest escapes.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
