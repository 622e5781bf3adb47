// Package format knows the values of JSON Schema's keyword "format" and checks whether a text has one of them.
package format

import "j17/internal/lang/schema/ecma"

// Format is one value of the keyword.
type Format struct {
	// Valid reports whether a text has the format. It takes time linear in the text.
	Valid func(s string) bool
	// Phrase names what is expected, for the middle of a sentence: an article, a noun and an example.
	Phrase string
	// share is how many sixteenths of a unit of package work it takes for each byte.
	share int
}

// How many sixteenths of a unit it takes to check a byte: one that is compared with a few others, one of an
// internationalized name, and one of a regular expression, which becomes a tree.
const (
	plain  = 6
	mapped = 200
	parsed = 128
)

// Effort returns about how many units of package work Valid takes for a text of n bytes.
func (f Format) Effort(n int) int { return n * f.share / 16 }

// Lookup returns the format with the name.
func Lookup(name string) (Format, bool) {
	switch name {
	// Times.
	case "date":
		return Format{date, "a date such as 2024-02-29", plain}, true
	case "time":
		return Format{clockTime, "a time with its offset such as 08:30:00Z or 08:30:00+02:00", plain}, true
	case "date-time":
		return Format{dateTime, "a date and time such as 2024-02-29T08:30:00Z", plain}, true
	case "duration":
		return Format{duration, "an ISO 8601 duration such as P1DT12H", plain}, true
	// Names and addresses in networks.
	case "email":
		return Format{email, "an email address such as ada@example.com", plain}, true
	case "idn-email":
		return Format{idnEmail, "an email address such as ada@example.com", plain}, true
	case "hostname":
		return Format{hostnames(false), "a host name such as api.example.com", mapped}, true
	case "idn-hostname":
		return Format{hostnames(true), "an internationalized host name such as bücher.example", mapped}, true
	case "ipv4":
		return Format{ipv4, "an IPv4 address such as 192.0.2.1", plain}, true
	case "ipv6":
		return Format{ipv6, "an IPv6 address such as 2001:db8::1", plain}, true
	// URIs and their kin.
	case "uri":
		return Format{uri, "an absolute URI such as https://example.com/path", plain}, true
	case "uri-reference":
		return Format{uriReference, "a URI or a relative reference such as /path?query", plain}, true
	case "iri":
		return Format{iri, "an absolute IRI such as https://example.com/größe", plain}, true
	case "iri-reference":
		return Format{iriReference, "an IRI or a relative reference such as /größe", plain}, true
	case "uri-template":
		return Format{uriTemplate, "a URI template such as /orders/{id}", plain}, true
	// The rest.
	case "uuid":
		return Format{uuid, "a UUID such as 550e8400-e29b-41d4-a716-446655440000", plain}, true
	case "json-pointer":
		return Format{jsonPointer, "a JSON pointer such as /items/0", plain}, true
	case "relative-json-pointer":
		return Format{relativeJSONPointer, "a relative JSON pointer such as 1/items", plain}, true
	case "regex":
		return Format{ecma.Valid, "an ECMA-262 regular expression", parsed}, true
	default:
		return Format{}, false
	}
}

// Names lists the formats that Lookup knows.
func Names() []string {
	return []string{
		"date", "time", "date-time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
		"uri",
		"uri-reference", "iri", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer",
		"regex",
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// uuid is the textual form of RFC 9562, of any version and variant, in either case.
func uuid(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if !isHex(s[i]) {
				return false
			}
		}
	}
	return true
}
