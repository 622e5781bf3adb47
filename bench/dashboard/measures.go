package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/google/uuid"

	"j17/bench/chromium"
	"j17/bench/devserver"
)

// usable takes down when the overview shows what it is for: its navigation, the log and the latest events.
const usable = `new MutationObserver(() => {
	if (!window.usable && document.querySelector('nav a') && document.querySelector('[aria-label="Log of events"]') &&
		document.querySelector('a[href*="/events/"]')) requestAnimationFrame(() => { window.usable ||= performance.now() });
}).observe(document, {childList: true, subtree: true})`

// size is what a browser loads until it shows the overview.
func (s *site) size(context.Context) error {
	if _, err := chromium.Ask(s.page, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{
			Source: usable,
		}); err != nil {
		return err
	}
	if err := s.overview(); err != nil {
		return err
	}
	const sum = `[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
		.filter(e => !e.name.includes('/api/') && /\.woff2$/.test(e.name) === %v).reduce((n, e) => n + e.encodedBodySize, 0)`
	files, err := chromium.JS[float64](s.page, fmt.Sprintf(sum, false))
	if err != nil {
		return err
	}
	fonts, err := chromium.JS[float64](s.page, fmt.Sprintf(sum, true))
	s.row("page, scripts and styles until the overview, compressed", fmt.Sprintf("%.1f KB", files/1000), "120 KB")
	s.row("fonts", fmt.Sprintf("%.1f KB", fonts/1000), "80 KB")
	return err
}

// overview loads the overview with nothing in the cache.
func (s *site) overview() error {
	_, err := chromium.Ask(s.page, network.ClearBrowserCache, cdp.Empty{})
	return errors.Join(err, s.page.Load(s.environment+"overview"), s.page.Until("window.usable > 0"))
}

// start is how long it takes until the overview can be used.
func (s *site) start(context.Context) error {
	for _, of := range []struct {
		slower float64
		what   string
		bar    string
	}{{1, "overview usable, nothing cached", "1000 ms"}, {4, "the same at a quarter of the processor's speed", "2500 ms"}} {
		if _, err := chromium.Ask(s.page, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{
			Rate: of.slower,
		}); err != nil {
			return err
		}
		var all []float64
		for range loads {
			if err := s.overview(); err != nil {
				return err
			}
			took, err := chromium.JS[float64](s.page, "window.usable")
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		s.row(fmt.Sprintf("%s, median of %d", of.what, loads), milliseconds(quantile(all, 0.5)), of.bar)
	}
	_, err := chromium.Ask(s.page, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: 1})
	return err
}

// live goes to the list of events and waits for its stream.
func (s *site) live() error {
	return errors.Join(s.page.Load(s.environment+"events"), s.page.Settled("Events"),
		s.page.Until(`document.querySelector('[aria-label=Stream]').textContent.includes('Live')`))
}

// latency is how long after its commit an event shows. Both ends read the clock of this machine.
func (s *site) latency(ctx context.Context) error {
	const rate = 100
	if err := s.live(); err != nil {
		return err
	}
	if _, err := chromium.JS[bool](s.page, `window.seen = {}, new MutationObserver(all => {
		const at = performance.timeOrigin + performance.now();
		for (const m of all) for (const n of m.addedNodes) { const of = /the tick of number (\d+)/.exec(n.textContent ?? ''); if (of) window.seen[of[1]] ??= at }
	}).observe(document.querySelector('table[aria-label=Events] tbody'), {childList: true}), true`); err != nil {
		return err
	}
	committed := map[int]time.Time{}
	began := now()
	for i := 0; now().Sub(began) < s.each; i++ {
		if err := s.write(ctx, uuid.NewString(), 1); err != nil {
			return err
		}
		committed[s.count] = now()
		if due := began.Add(time.Duration(i) * time.Second / rate); due.After(now()) {
			if err := wait(ctx, due); err != nil {
				return err
			}
		}
	}
	if err := s.page.Until(fmt.Sprintf("window.seen[%d]", s.count)); err != nil {
		return err
	}
	raw, err := chromium.JS[map[int]float64](s.page, "window.seen")
	if err != nil {
		return err
	}
	var all []float64
	for n, at := range committed {
		if seen, ok := raw[n]; ok {
			all = append(all, max(0, seen-float64(at.UnixNano())/1e6))
		}
	}
	missed := len(committed) - len(all)
	s.row(
		fmt.Sprintf("from the commit until an event shows, at %d a second, median and 99th percentile of %d (%d missed)", rate, len(all), missed),
		milliseconds(quantile(all, 0.5))+", "+milliseconds(quantile(all, 0.99)), "200 ms",
	)
	return nil
}

// frames is the drawing of frames over some time, while do is called in each.
const frames = `new Promise(done => { let n = 0, worst = 0, most = 0, last = performance.now(); const began = last; const f = t => {
	n++; worst = Math.max(worst, t - last); last = t; %s; if (n %% 20 === 0) most = Math.max(most, document.querySelectorAll('*').length);
	t - began < %d ? requestAnimationFrame(f) : done({rate: n * 1000 / (t - began), worst, elements: most}) }; requestAnimationFrame(f) })`

// drawn is what frames finds.
type drawn struct{ Rate, Worst, Elements float64 }

func (s *site) frames(do string, during time.Duration) (drawn, error) {
	return chromium.JS[drawn](s.page, fmt.Sprintf(frames, do, during.Milliseconds()))
}

// tail is how smooth the list stays while more comes than anybody can read.
func (s *site) tail(ctx context.Context) error {
	const rate = 5000
	if err := s.live(); err != nil {
		return err
	}
	return s.while(ctx, rate, batch, func() error {
		if err := s.page.Until(`document.querySelector('.rate').textContent.includes('Sampled')`); err != nil {
			return err
		}
		d, err := s.frames("", s.each)
		s.row(fmt.Sprintf("list of events at %d a second, frames a second (the longest frame)", rate),
			fmt.Sprintf("%.0f (%.0f ms)", d.Rate, d.Worst), "50")
		return err
	})
}

// slider is how long a step takes until the other state is drawn.
func (s *site) slider(ctx context.Context) error {
	if err := errors.Join(s.page.Load(s.environment+"aggregates/tick/"+s.ticks), s.page.Settled("tick/")); err != nil {
		return err
	}
	const press = `(async () => { const text = () => document.querySelector('[aria-label=State] .json')?.textContent ?? '';
		const before = text(), began = performance.now();
		document.querySelector('[aria-label=Version]').dispatchEvent(new KeyboardEvent('keydown', {key: %s, bubbles: true}));
		while (text() === before && performance.now() - began < 5000) await new Promise(requestAnimationFrame);
		return performance.now() - began })()`
	step := func(key string) (float64, error) {
		// A person looks at what a step has brought before the next.
		if err := wait(ctx, now().Add(150*time.Millisecond)); err != nil {
			return 0, err
		}
		return chromium.JS[float64](s.page, fmt.Sprintf(press, chromium.Quoted(key)))
	}
	var steps, far []float64
	for range 40 {
		took, err := step("ArrowLeft")
		if err != nil {
			return err
		}
		steps = append(steps, took)
	}
	for range 5 {
		if _, err := step("End"); err != nil {
			return err
		}
		if err := errors.Join(
			s.page.Load(s.environment+"aggregates/tick/"+s.ticks), s.page.Settled("tick/"),
		); err != nil {
			return err
		}
		took, err := step("Home")
		if err != nil {
			return err
		}
		far = append(far, took)
	}
	s.row("a step of the slider until the state is drawn, median and 95th percentile",
		milliseconds(quantile(steps, 0.5))+", "+milliseconds(quantile(steps, 0.95)), "50 ms")
	s.row(fmt.Sprintf("from version %d to the first, nothing loaded, median of %d", versions, len(far)), milliseconds(quantile(far, 0.5)), "300 ms")
	return nil
}

// routes are the requests behind the page of an aggregate with many versions.
func (s *site) routes(ctx context.Context) error {
	of := "aggregates/tick/" + s.ticks
	for _, r := range []struct{ what, path string }{
		{"changes of the last hundred versions", fmt.Sprintf("%s/changes?from=%d&count=100", of, versions-99)},
		{"blame of the newest state", of + "/blame"},
	} {
		var all []float64
		for range 10 {
			began := now()
			if _, err := s.control(ctx, http.MethodGet, s.ops(r.path), nil); err != nil {
				return err // what does not stay within the budget of a read is refused
			}
			all = append(all, float64(now().Sub(began).Microseconds())/1000)
		}
		s.row(
			fmt.Sprintf("%s of %d, median of %d", r.what, versions, len(all)), milliseconds(quantile(all, 0.5)),
			"the budget of a read",
		)
	}
	return nil
}

// trace is how long the graph of an event takes that has led to many others.
func (s *site) trace(ctx context.Context) error {
	leaves := make([]string, nodes-1)
	for i := range leaves {
		leaves[i] = `"` + uuid.NewString() + `"`
	}
	r, err := s.Request(ctx, "prod", http.MethodPost, "/fan/"+uuid.NewString()+"/was_opened",
		strings.NewReader(`{"data":{"leaves":[`+strings.Join(leaves, ",")+`]},`+metadata+`}`))
	if err != nil {
		return err
	}
	raw, err := devserver.Answer(s.client, r)
	if err != nil {
		return err
	}
	var written struct {
		StreamID string `json:"stream_id"`
	}
	if err := json.Unmarshal(raw, &written); err != nil {
		return err
	}
	var all []float64
	var graph struct{ Nodes []struct{} }
	for range 10 {
		began := now()
		raw, err := s.control(ctx, http.MethodGet, s.ops("trace/"+written.StreamID), nil)
		if err != nil {
			return err
		}
		all = append(all, float64(now().Sub(began).Microseconds())/1000)
		if err := json.Unmarshal(raw, &graph); err != nil {
			return err
		}
	}
	s.row(
		fmt.Sprintf("trace of %d nodes, median of %d", len(graph.Nodes), len(all)), milliseconds(quantile(all, 0.5)),
		"50 ms",
	)
	return nil
}

// scroll is how smoothly a list of very many events moves.
func (s *site) scroll(ctx context.Context) error {
	if err := s.live(); err != nil {
		return err
	}
	const list = `document.querySelector('[aria-label=Events] .scroll')`
	for have := 0; have < rows; {
		n, err := chromium.JS[int](s.page, `new Promise(done => { const e = `+list+`; e.scrollTop = e.scrollHeight; setTimeout(() =>
			done(Number((document.querySelector('.here')?.textContent ?? '0').replace(/\D/g, ''))), 30) })`)
		if err != nil {
			return err
		}
		if have = n; ctx.Err() != nil {
			return ctx.Err()
		}
	}
	d, err := s.frames(list+".scrollTop -= 180", s.each)
	if err != nil {
		return err
	}
	s.row(fmt.Sprintf("scrolling %d events, frames a second (the longest frame)", rows), fmt.Sprintf("%.0f (%.0f ms)", d.Rate, d.Worst), "50")
	s.row("elements of the page meanwhile, at most", fmt.Sprintf("%.0f", d.Elements), "3000")
	return nil
}

// heap is what the page's memory comes to once what nobody needs is gone.
func (s *site) heap() (float64, error) {
	for range 3 {
		if _, err := chromium.Ask(s.page, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
	}
	return chromium.JS[float64](s.page, "performance.memory.usedJSHeapSize / 1e6")
}

// memory is what the page of events has grown by once so many have gone by.
func (s *site) memory(ctx context.Context, events int) error {
	if err := s.live(); err != nil {
		return err
	}
	first, err := s.heap()
	if err != nil {
		return err
	}
	began := now()
	for written := 0; written < events; written += batch {
		if err := s.write(ctx, uuid.NewString(), batch); err != nil {
			return err
		}
		// As fast as the tail is measured: a browser that falls behind would show another thing.
		if due := began.Add(time.Duration(written) * time.Second / 5000); due.After(now()) {
			if err := wait(ctx, due); err != nil {
				return err
			}
		}
	}
	if err := wait(ctx, now().Add(5*time.Second)); err != nil {
		return err
	}
	last, err := s.heap()
	s.row(fmt.Sprintf("memory of the list of events after %d have come, and before", events), fmt.Sprintf("%+.1f MB (%.1f to %.1f MB)", last-first, first, last), "20 MB")
	return err
}

// many is by how much dashboards that are open slow writes down.
func (s *site) many(ctx context.Context) error {
	const dashboards, rounds, clients = 100, 3, 16
	write := func() (float64, error) {
		writing, stop := context.WithTimeout(ctx, s.each/2)
		defer stop()
		n, err := s.WriteNew(writing, s.client, clients, "/was_placed", `{"data":{"customer":"c","amount":12.5},`+metadata+`}`)
		return float64(n) / (s.each / 2).Seconds(), err
	}
	if err := s.page.Load("about:blank"); err != nil {
		return err
	}
	var without, with []float64
	for range rounds {
		if _, err := write(); err != nil {
			return err
		}
		n, err := write()
		if err != nil {
			return err
		}
		without = append(without, n)

		// The dashboards do not all open with the first write.
		looking, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		for i := range dashboards {
			all.Go(func() {
				if wait(looking, now().Add(time.Duration(i)*askEvery/dashboards)) == nil {
					s.look(looking)
				}
			})
		}
		if err := wait(ctx, now().Add(askEvery)); err != nil {
			stop()
			return err
		}
		// With the first writes they see that there are more events than anybody can read.
		if _, err := write(); err != nil {
			stop()
			return err
		}
		n, err = write()
		stop()
		all.Wait()
		if err != nil {
			return err
		}
		with = append(with, n)
	}
	a, b := quantile(without, 0.5), quantile(with, 0.5)
	s.row(fmt.Sprintf("writes beside %d open overviews, to writes alone, median of %d", dashboards, rounds), fmt.Sprintf("%.2f (%.0f to %.0f a second)", b/a, b, a), "0.97")
	return nil
}
