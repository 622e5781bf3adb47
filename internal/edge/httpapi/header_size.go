package httpapi

import (
	"net/http"
	"strings"

	"j17"
)

// LongestHeader is how many bytes the header of a request may have if its polygon needs them: the URL of one of 10,000
// vertices has some 300,000. Listeners refuse a longer one.
const LongestHeader = 512 << 10

// MaxHeader is how many bytes the header of any other request may have, its first line included.
const MaxHeader = 32 << 10

// checkHeader refuses a request whose header is too large.
func checkHeader(r *http.Request) error {
	fields := len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			fields += len(name) + len(v)
		}
	}
	if fields+len(r.RequestURI) <= MaxHeader {
		return nil
	}
	if fields > MaxHeader {
		return j17.Errorf(j17.CodeHeaderTooLarge, "The fields of the request's header have %d bytes; %d are possible. Send fewer, or shorter ones.", fields, MaxHeader)
	}

	// A polygon may be in the URL of a read.
	path := len(r.RequestURI) - len(r.URL.RawQuery)
	if r.Method == http.MethodGet && path+fields <= MaxHeader && strings.HasSuffix(r.URL.Path, "/within") {
		return nil
	}
	if strings.HasSuffix(r.URL.Path, "/within/stream") {
		return j17.Errorf(j17.CodeHeaderTooLarge, "The URL has %d bytes; with the other fields of the request's header %d are possible, also for the polygon of a stream. Send one of fewer vertices, or ask for a 'box'.", len(r.RequestURI), MaxHeader)
	}
	return j17.Errorf(j17.CodeHeaderTooLarge, "The URL has %d bytes; with the other fields of the request's header %d are possible, but for a polygon of 'within', which may as well come as GeoJSON in the body of a POST. Ask for less at a time.", len(r.RequestURI), MaxHeader)
}
