package httpapi

import (
	"net/http"
	"strings"

	"j17"
)

// Names of headers of our own.
const (
	headerCorrelationID       = "X-Correlation-Id"
	headerRequestID           = "X-Request-Id"
	headerIdempotencyKey      = "Idempotency-Key"
	headerIdempotencyKeyOld   = "X-Idempotency-Key" // an older name of the same header
	headerIdempotencyReplayed = "X-Idempotency-Replayed"
	headerRateLimit           = "X-Ratelimit-Limit"
	headerRateRemaining       = "X-Ratelimit-Remaining"
	headerRateScope           = "X-Ratelimit-Scope"
	headerBlobVersion         = "X-Blob-Version"
)

// Headers of the IETF draft on rate limits (draft-ietf-httpapi-ratelimit-headers), which stand beside our own.
const (
	headerRatePolicy = "Ratelimit-Policy"
	headerRate       = "Ratelimit"
)

// Content types of pages.
const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// maxIdempotencyKey is the length of the longest idempotency key.
const maxIdempotencyKey = 255

// idempotencyKey returns the idempotency key of a request, "" where it has none. It may be in either of two headers, or
// in both.
func idempotencyKey(h http.Header) (string, error) {
	key := ""
	for _, name := range []string{headerIdempotencyKey, headerIdempotencyKeyOld} {
		values, ok := h[name]
		if !ok {
			continue
		}
		if len(values) != 1 || !validKey(values[0]) {
			return "", j17.Errorf(j17.CodeInvalidHeader, "%s must be one value of 1 to %d printable ASCII characters", name, maxIdempotencyKey).At(strings.ToLower(name))
		}
		if key != "" && key != values[0] {
			return "", j17.Errorf(j17.CodeInvalidHeader, "%s and %s are two names of one header and have different values. Send one of them.", headerIdempotencyKey, headerIdempotencyKeyOld).At(strings.ToLower(name))
		}
		key = values[0]
	}
	return key, nil
}

// validKey reports whether a text may be an idempotency key.
func validKey(key string) bool {
	for i := range len(key) {
		if b := key[i]; b < ' ' || b > '~' {
			return false
		}
	}
	return key != "" && len(key) <= maxIdempotencyKey
}

// entityTags reads a list of strong entity tags or "*". Weak tags are left out: they never match a strong comparison,
// so a list of nothing else matches nothing.
func entityTags(h http.Header, name string) ([]string, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return nil, nil
	}
	bad := j17.Errorf(j17.CodeInvalidHeader, "%s must be * or a list of entity tags in double quotes, as ETag shows them", name).At(strings.ToLower(name))

	// Several headers are one list, and empty elements of it mean nothing (RFC 9110, 5.6.1).
	list := strings.Join(values, ",")
	next := func() string { return strings.TrimLeft(list, " \t,") }
	if strings.TrimSpace(list) == "*" {
		return []string{"*"}, nil
	}

	var tags []string
	for list = next(); list != ""; list = next() {
		// A tag, weak or strong.
		weak := strings.HasPrefix(list, "W/")
		list = strings.TrimPrefix(list, "W/")
		if list == "" || list[0] != '"' {
			return nil, bad
		}
		end := strings.IndexByte(list[1:], '"')
		if end < 0 {
			return nil, bad
		}
		tag := list[:end+2]
		if weak {
			tag = "W/" + tag
		}
		tags = append(tags, tag)

		// A comma, or nothing more.
		if list = strings.TrimLeft(list[end+2:], " \t"); list != "" && list[0] != ',' {
			return nil, bad
		}
	}
	if tags == nil {
		return nil, bad
	}
	return tags, nil
}

// acceptsLines reports whether the client asks for one event a line.
func acceptsLines(h http.Header) bool { return accepts(h, typeLines) }

// accepts reports whether the client names a media type and does not prefer JSON, which is the default.
func accepts(h http.Header, wanted string) bool {
	q, asked := quality(h, wanted)
	if !asked || q == 0 {
		return false
	}
	for _, name := range []string{typeJSON, "application/*", "*/*"} {
		if other, ok := quality(h, name); ok {
			return q >= other
		}
	}
	return true
}

// quality returns how much a client wants a media type that it asks for by this name, from 0, which is not at all, to
// 1.
func quality(h http.Header, name string) (q float64, asked bool) {
	for _, v := range h["Accept"] {
		for part := range strings.SplitSeq(v, ",") {
			media, parameters, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(media), name) {
				return qualityIn(parameters), true
			}
		}
	}
	return 0, false
}

// qualityIn reads the q of the parameters of a media type. An invalid one counts as 1.
func qualityIn(parameters string) float64 {
	for p := range strings.SplitSeq(parameters, ";") {
		if name, v, ok := strings.Cut(p, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			if q, ok := decimal(strings.TrimSpace(v)); ok && q >= 0 && q < 1 {
				return q
			}
			return 1
		}
	}
	return 1
}
