package httpapi_test

import (
	"strings"
	"testing"

	"j17/internal/edge/httpapi"
)

// TestObservedFailures checks what is told of requests that fail: where and why.
func TestObservedFailures(t *testing.T) {
	var got httpapi.Exchange
	f := newFixture(t, func(o *httpapi.Options) { o.Observe = func(x httpapi.Exchange) { got = x } })
	for _, tc := range []struct {
		method, path, body, route string
		want                      []string
	}{
		{
			"POST", "/note/global/was_coded", `{"data":{"code":7},` + actor + `}`, "/{type}/{id}/{event}",
			[]string{"data.code: ", "string"},
		},
		{"POST", "/note/global", `{"events":[{"type":"was_written","data":{}},{"type":"was_coded","data":{"code":7}}],` + actor + `}`, "/{type}/{id}", []string{": event 1 of the request, counted from 0: data.code: ", "string"}},
		{
			"POST", "/note/global/was_written", `{"data":{},"metadata":{}}`, "/{type}/{id}/{event}",
			[]string{"metadata.actor: Missing 'actor'"},
		},
		{
			"POST", "/note/global/secret", `{"data":{},` + actor + `}`, "/{type}/{id}/{event}",
			[]string{"the reply says what is wrong"},
		},
		{"GET", "/note/global?at=x", "", "/{type}/{id}", []string{"'at' must"}},
		{"GET", "/livez", "", "/livez", nil},
	} {
		f.do(t, tc.method, tc.path, tc.body)
		if got.Route != tc.route || got.Method != tc.method {
			t.Errorf("%s %s is %+v", tc.method, tc.path, got)
		}
		if (got.Code != "") != (tc.want != nil) {
			t.Errorf("%s %s: %q", tc.method, tc.path, got.Code)
		}
		for _, want := range tc.want {
			if strings.Count(got.Detail, want) != 1 {
				t.Errorf("%s %s: %q does not say %q once", tc.method, tc.path, got.Detail, want)
			}
		}
	}
}

// TestASign checks that only a server that was given a sign shows one, to whoever asks.
func TestASign(t *testing.T) {
	for _, sign := range []string{"", "0123456789abcdef"} {
		f := newFixture(t, func(o *httpapi.Options) { o.Sign = sign })
		f.key = "none"
		got, shown := f.do(t, "GET", "/livez", "").header[httpapi.HeaderSign]
		if shown != (sign != "") || shown && got[0] != sign {
			t.Errorf("%q: %q", sign, got)
		}
	}
}
