// A handler and an implication for j17 in C, without a standard library. The input is JSON that j17 has made, so it is well
// formed; this reads it in place and copies what it needs to the output.
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef struct { const char *at, *end; } text;

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536u

// Memory. Nothing is freed: j17 puts the memory back after each call. The block below is enough for most calls; beyond it
// the memory grows, which works too but costs a new instance.
static _Alignas(16) char arena[4 * PAGE];
static char *next = arena;
static char *limit = arena + sizeof arena;

EXPORT(malloc) void *allocate(u32 size) {
	size = (size + 15) & ~15u;
	if (size > (u32)(limit - next)) {
		u32 pages = size / PAGE + 1;
		u32 last = __builtin_wasm_memory_grow(0, pages);
		if (last == (u32)-1) __builtin_trap();
		next = (char *)(last * PAGE);
		limit = next + pages * PAGE;
	}
	void *block = next;
	next += size;
	return block;
}

// --- Reading

static const char *space(const char *p, const char *end) {
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
	return p;
}

// value returns the value that begins at p: everything up to the comma or bracket that follows it.
static text value(const char *p, const char *end) {
	text v = {space(p, end), end};
	int depth = 0;
	for (p = v.at; p < end; p++) {
		if (*p == '"') {
			for (p++; p < end && *p != '"'; p++) if (*p == '\\') p++;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']') {
			if (depth-- == 0) break;
		} else if (*p == ',' && depth == 0) {
			break;
		}
	}
	if (p > end) p = end;
	v.end = p;
	while (v.end > v.at && (v.end[-1] == ' ' || v.end[-1] == '\n' || v.end[-1] == '\r' || v.end[-1] == '\t')) v.end--;
	return v;
}

// item moves to the next item of a list, or the next member of an object, and returns 0 after the last one. *p is 0 at first.
static int item(text list, const char **p, text *out) {
	const char *at = *p ? space(*p, list.end) : space(list.at + 1, list.end);
	if (list.at >= list.end || at >= list.end || *at == ']' || *at == '}') return 0;
	if (*p) {
		if (*at != ',') return 0;
		at++;
	}
	*out = value(at, list.end);
	*p = out->end;
	return out->at < out->end;
}

// get returns a member of an object; it is empty where there is none.
static text get(text object, const char *name) {
	text none = {0, 0}, member;
	if (object.at >= object.end || *object.at != '{') return none;
	for (const char *p = 0; item(object, &p, &member);) {
		const char *at = member.at + 1, *n = name;
		while (at < member.end && *n && *at == *n) at++, n++;
		if (*n == 0 && at < member.end && *at == '"') {
			at = space(at + 1, member.end);
			return value(at + 1, member.end); // after the colon
		}
	}
	return none;
}

// whole reads a whole number in a range; it returns 0 if it is none.
static int whole(text v, i64 least, i64 most, i64 *out) {
	i64 n = 0;
	const char *p = v.at;
	int negative = p < v.end && *p == '-';
	if (negative) p++;
	if (p >= v.end || v.end - p > 18) return 0;
	for (; p < v.end; p++) {
		if (*p < '0' || *p > '9') return 0;
		n = n * 10 + (*p - '0');
	}
	*out = negative ? -n : n;
	return *out >= least && *out <= most;
}

// --- Writing

static char *out;
static u32 used, room;

static void put(const char *from, u32 size) {
	if (size > room - used) {
		u32 larger = (used + size) * 2;
		char *block = allocate(larger);
		for (u32 i = 0; i < used; i++) block[i] = out[i];
		out = block, room = larger;
	}
	for (u32 i = 0; i < size; i++) out[used++] = from[i];
}

static void str(const char *s) {
	u32 size = 0;
	while (s[size]) size++;
	put(s, size);
}

static void copy(text v) {
	if (v.at < v.end) put(v.at, (u32)(v.end - v.at)); else str("null");
}

static void num(i64 n) {
	char digits[20];
	int at = sizeof digits;
	u64 rest = n < 0 ? -(u64)n : (u64)n;
	do digits[--at] = (char)('0' + rest % 10); while (rest /= 10);
	if (n < 0) str("-");
	put(digits + at, sizeof digits - (u32)at);
}

static u64 done(void) { return (u64)(u32)out << 32 | used; }

static u64 reject(const char *code, const char *field, const char *message) {
	str("{\"error\":{\"type\":\"validation_failed\",\"message\":\""), str(message);
	str("\",\"code\":\""), str(code), str("\",\"context\":{\"field\":\""), str(field), str("\"}}}");
	return done();
}

// --- The rules

// Adds a line to an order and works out the totals, in cents.
EXPORT(apply_handler) u64 apply_handler(const char *ptr, u32 size) {
	text input = {ptr, ptr + size};
	text state = get(input, "state"), data = get(get(input, "event"), "data"), lines = get(state, "lines"), line;
	i64 quantity, price, total = 0;
	if (!whole(get(data, "quantity"), 1, 1000000, &quantity))
		return reject("INVALID_QUANTITY", "quantity", "The quantity has to be a whole number from 1 to 1000000.");
	if (!whole(get(data, "unit_price"), 0, 100000000, &price))
		return reject("INVALID_PRICE", "unit_price", "The unit price has to be a whole number of cents from 0 to 100000000.");
	whole(get(state, "total"), 0, 1000000000000000000, &total);
	str("{\"state\":{\"lines\":[");
	for (const char *p = 0; lines.at && *lines.at == '[' && item(lines, &p, &line);) copy(line), str(",");
	str("{\"sku\":"), copy(get(data, "sku"));
	str(",\"unit_price\":"), num(price), str(",\"quantity\":"), num(quantity), str(",\"line_total\":"), num(price * quantity);
	str("}],\"total\":"), num(total + price * quantity), str("}}");
	return done();
}

// Reserves every item of an order.
EXPORT(compute_implications) u64 compute_implications(const char *ptr, u32 size) {
	text input = {ptr, ptr + size};
	text event = get(input, "event"), items = get(get(event, "data"), "items"), one;
	str("{\"actions\":[");
	int n = 0;
	for (const char *p = 0; items.at && *items.at == '[' && item(items, &p, &one); n++) {
		if (n) str(",");
		str("{\"emit\":{\"aggregate_type\":\"inventory\",\"id\":"), copy(get(one, "product_id"));
		str(",\"event_type\":\"was_reserved\",\"data\":{\"quantity\":"), copy(get(one, "quantity"));
		str(",\"order\":"), copy(get(event, "key")), str("}}}");
	}
	str("]}");
	return done();
}
