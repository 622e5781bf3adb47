//go:build !race

package browser_test

import (
	"strings"
	"sync/atomic"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// intercept changes the bodies of answers from addresses that match a pattern with stars, on their way to the page. The
// returned function says how many were changed.
func (b *tab) intercept(pattern string, change func(body string) string) (changed func() int64) {
	b.tb.Helper()
	var count atomic.Int64
	paused := make(chan *fetch.EventRequestPaused, 100)
	if err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*fetch.EventRequestPaused); ok {
			paused <- e
		}
	}); err != nil {
		b.tb.Fatal(err)
	}
	must(b, fetch.Enable, fetch.EnableParams{
		Patterns: []*fetch.RequestPattern{{URLPattern: pattern, RequestStage: fetch.RequestStageResponse}},
	})
	go func() {
		for {
			var e *fetch.EventRequestPaused
			select {
			case <-b.ctx.Done():
				return
			case e = <-paused:
			}
			got, err := chromedp.Call(b.ctx, fetch.GetResponseBody, fetch.GetResponseBodyParams{RequestID: e.RequestID})
			if err != nil {
				continue // the page has gone on
			}
			body := string(got.Body)
			now := change(body)
			if now != body {
				count.Add(1)
			}
			var headers []*fetch.HeaderEntry
			for _, h := range e.ResponseHeaders {
				if name := strings.ToLower(h.Name); name != "content-length" && name != "content-encoding" {
					headers = append(headers, h)
				}
			}
			_, _ = chromedp.Call(b.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{
				RequestID: e.RequestID, ResponseCode: e.ResponseStatusCode, ResponseHeaders: headers, Body: []byte(now),
			})
		}
	}()
	return count.Load
}
