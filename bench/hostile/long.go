package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"j17/bench/devserver"
)

// costly is one kind of long work that is measured by itself: what it takes of the processor, of time and of memory,
// and what a light client of another environment notices meanwhile.
type costly struct {
	// prepare makes what the work is about, which is not measured.
	prepare func(t *target, ctx context.Context, n int) error
	// run does the work. It returns when the work is done.
	run func(t *target, ctx context.Context, n int) error
}

// costlies has the kinds by their names. n is how large they are, in events where nothing else is said.
func costlies() map[string]costly {
	return map[string]costly{
		"erase":      {(*target).longStream, (*target).erase},
		"cascade":    {(*target).manyStreams, (*target).erase},
		"chain":      {(*target).longStream, audits("verify-chain")},
		"root":       {(*target).longStream, audits("merkle-root")},
		"proof":      {(*target).longStream, audits("merkle-proof/0")},
		"triangles":  {(*target).manyPlaces, (*target).triangles},
		"concat":     {(*target).digits, (*target).concat},
		"conditions": {(*target).tagged, (*target).conditions},
	}
}

// longSpec is what the kinds write to.
const longSpec = `{"agent_types": ["user"], "aggregate_types": {
	"user": {"events": {"had_note": {"schema": {"type": "object"}, "handler": [{"set": {"target": "last", "value": "$.data.n"}}]}}},
	"comment": {"onTombstone": {"actor": "cascade", "target": "preserve"}, "events": {"was_written": {"schema": {"type": "object"}, "handler": []}}},
	"visit": {"events": {"was_unmade": {"schema": {"type": "object"}, "tags": {"of": "$.data.of"}, "handler": []}, "was_made": {"schema": {"type": "object"}, "tags": {"of": "$.data.of"}, "handler": []}}},
	"item": {"events": {"was_made": {"schema": {"type": "object"}, "geo": {"type": "point", "path": "$.data.at"}, "handler": []}}},
	"text": {"events": {
		"was_set": {"schema": {"type": "object"}, "handler": [{"set": {"target": "digits", "value": "$.data.digits"}}]},
		"was_joined": {"schema": {"type": "object"}, "handler": [{"if": {"every": {"in": "$.data.ns", "as": "$n",
			"match": {"not_equals": [{"$concat": ["@.digits", "$n"]}, "x"]}}}, "then": [{"set": {"target": "n", "value": 1}}]}]}}},
	"sum": {"events": {"was_added": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "n", "by": "$.data.by"}}]}}}}}`

// subject is the aggregate that a kind is about.
const subject = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"

// batchOf is how many events are prepared with one request.
const batchOf = 10_000

// runLong measures one kind of work of one size, and writes what it took as a line of JSON.
func runLong(ctx context.Context, bin, name string, work costly, n int, out io.Writer) error {
	server, err := devserver.Start(ctx, bin, longSpec)
	if err != nil {
		return err
	}
	defer server.End()
	t := &target{server, &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}}
	if err := work.prepare(t, ctx, n); err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	before, err := t.settled(ctx)
	if err != nil {
		return err
	}

	// The work, a light client beside it, and a look at the memory every 50 ms.
	beside, over := context.WithCancel(ctx)
	defer over()
	var all sync.WaitGroup
	var latencies []time.Duration
	peak := before
	all.Go(func() { latencies = t.paced(beside) })
	all.Go(func() { peak = t.peak(beside, before) })
	spent, began := t.spent(), time.Now() //nolint:forbidigo // this program measures the real time
	err = work.run(t, ctx, n)
	wall, cpu := time.Since(began), t.spent()-spent //nolint:forbidigo // as above
	over()
	all.Wait()
	if err != nil {
		return err
	}
	result := map[string]any{
		"case": name, "n": n, "wall_s": wall.Seconds(), "cpu_s": cpu.Seconds(), "memory_before_mib": before,
		"memory_peak_mib": peak,
	}
	if slices.Sort(latencies); len(latencies) > 0 {
		result["light_requests"], result["light_p50_ms"] = len(latencies), milliseconds(latencies[len(latencies)/2])
		result["light_p99_ms"], result["light_max_ms"] = milliseconds(latencies[len(latencies)*99/100]),
			milliseconds(latencies[len(latencies)-1])
	}
	return json.NewEncoder(out).Encode(result)
}

// spent is the processor time of the server so far.
func (t *target) spent() time.Duration {
	spent, _ := t.Processor() // 0 where the system does not tell
	return spent
}

// settled waits until the server takes next to no processor time, and returns its memory then, in MiB.
func (t *target) settled(ctx context.Context) (int, error) {
	for range 60 {
		before := t.spent()
		if err := rest(ctx, time.Second); err != nil {
			return 0, err
		}
		if t.spent()-before < 30*time.Millisecond {
			break
		}
	}
	return t.Memory("VmRSS")
}

// peak is the most memory that the server takes until ctx ends.
func (t *target) peak(ctx context.Context, most int) int {
	for rest(ctx, 50*time.Millisecond) == nil {
		if now, err := t.Memory("VmRSS"); err == nil {
			most = max(most, now)
		}
	}
	return most
}

// paced writes a small event every 10 ms until ctx ends and returns how long each took.
func (t *target) paced(ctx context.Context) (took []time.Duration) {
	for rest(ctx, 10*time.Millisecond) == nil {
		began := time.Now() //nolint:forbidigo // this program measures the real time
		status, err := t.send(
			ctx, "staging", http.MethodPost, "/sum/_new/was_added", strings.NewReader(`{"data":{"by":1},`+actor+`}`),
		)
		if err == nil && status == http.StatusCreated {
			took = append(took, time.Since(began)) //nolint:forbidigo // as above
		}
	}
	return took
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d): //nolint:forbidigo // as above
		return nil
	}
}

// ask sends a request to prod, which has to be carried out.
func (t *target) ask(ctx context.Context, method, path, body string) error {
	r, err := t.Request(ctx, "prod", method, path, strings.NewReader(body))
	if err == nil {
		_, err = devserver.Answer(t.client, r)
	}
	return err
}

// longStream writes n events to the subject.
func (t *target) longStream(ctx context.Context, n int) error {
	for at := 0; at < n; at += batchOf {
		var b strings.Builder
		for i := at; i < min(n, at+batchOf); i++ {
			fmt.Fprintf(&b, `%s{"type":"had_note","data":{"n":%d}}`, strings.Repeat(",", min(1, i-at)), i)
		}
		if err := t.ask(ctx, http.MethodPost, "/user/"+subject, `{"events":[`+b.String()+`],`+actor+`}`); err != nil {
			return err
		}
	}
	return nil
}

// perStream is how many events each of many streams has.
const perStream = 10

// manyStreams writes n events to streams that go along with the subject.
func (t *target) manyStreams(ctx context.Context, n int) error {
	if err := t.ask(ctx, http.MethodPost, "/user/"+subject+"/had_note", `{"data":{"n":1},`+actor+`}`); err != nil {
		return err
	}
	for at := 0; at < n; at += batchOf {
		var b strings.Builder
		for i := at; i < min(n, at+batchOf); i++ {
			key := "comment:" + item(i/perStream)
			fmt.Fprintf(&b, "{\"key\":%q,\"type\":\"was_written\",\"data\":{\"n\":%d},\"metadata\":{\"actor\":{\"type\":\"user\",\"id\":%q}}}\n", key, i, subject)
		}
		if _, err := t.Administer(
			ctx, t.client, http.MethodPost, "import_jsonl", strings.NewReader(b.String()),
		); err != nil {
			return err
		}
	}
	return nil
}

// erase erases the subject and waits until that is completed.
func (t *target) erase(ctx context.Context, _ int) error {
	type answer struct {
		Tombstone struct{ ID, Status string }
	}
	var got answer
	raw, err := t.Administer(ctx, t.client, http.MethodPost, "tombstone/user/"+subject, strings.NewReader("{}"))
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	if err != nil {
		return err
	}
	path := "tombstones/" + got.Tombstone.ID
	if _, err := t.Administer(
		ctx, t.client, http.MethodPost, path+"/execute", strings.NewReader(`{"force":true}`),
	); err != nil {
		return err
	}
	for got.Tombstone.Status != "completed" {
		if err := rest(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if raw, err = t.Administer(ctx, t.client, http.MethodGet, path, nil); err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// audits asks for a proof of the subject's stream.
func audits(what string) func(t *target, ctx context.Context, n int) error {
	return func(t *target, ctx context.Context, _ int) error {
		return t.ask(ctx, http.MethodGet, "/user/"+subject+"/audit/"+what, "")
	}
}

// manyPlaces writes n points.
func (t *target) manyPlaces(ctx context.Context, n int) error {
	for i := range n {
		at := fmt.Sprintf(`{"data":{"at":{"lat":%.4f,"lng":%.4f}},%s}`, 52+float64(i%100)/100, 13+float64(i/100%100)/100, actor)
		if err := t.ask(ctx, http.MethodPost, "/item/"+item(i)+"/was_made", at); err != nil {
			return err
		}
	}
	return nil
}

// triangles asks for what is in 3,333 triangles.
func (t *target) triangles(ctx context.Context, _ int) error {
	var b strings.Builder
	for i := range 3_333 {
		lng, lat := 13+float64(i%60)/60, 52+float64(i/60)/60
		fmt.Fprintf(&b, "%s[[[%.6f,%.6f],[%.6f,%.6f],[%.6f,%.6f],[%.6f,%.6f]]]", strings.Repeat(",", min(1, i)), lng, lat, lng+0.01, lat, lng, lat+0.01, lng, lat)
	}
	return t.ask(ctx, http.MethodPost, "/item/within?count=1000", `{"type":"MultiPolygon","coordinates":[`+b.String()+`]}`)
}

// digits gives the subject an array of digits that has a million bytes.
func (t *target) digits(ctx context.Context, _ int) error {
	return t.ask(
		ctx, http.MethodPost, "/text/"+subject+"/was_set",
		`{"data":{"digits":[`+strings.Repeat("7,", 450_000)+`7]},`+actor+`}`,
	)
}

// concat joins it with n others in one handler, until that is too much work.
func (t *target) concat(ctx context.Context, n int) error {
	return t.attempt(ctx, "/text/"+subject+"/was_joined", `{"data":{"ns":`+numbers(n, 0)+`},`+actor+`}`)
}

// attempt sends a write to prod that may be refused as too much work, which is measured as well.
func (t *target) attempt(ctx context.Context, path, body string) error {
	status, err := t.send(ctx, "prod", http.MethodPost, path, strings.NewReader(body))
	if err == nil && status != http.StatusCreated && status != http.StatusUnprocessableEntity {
		err = fmt.Errorf("%s: %d", path, status)
	}
	return err
}

// perTagged is how many events with tags are prepared with one request: ten tags of each are charged to it.
const perTagged = 2_000

// tagged writes n events that each have the same ten tags, and none that a condition asks for with them.
func (t *target) tagged(ctx context.Context, n int) error {
	for at := 0; at < n; at += perTagged {
		events := strings.Repeat(`,{"type":"was_made","data":{"of":[0,1,2,3,4,5,6,7,8,9]}}`, min(perTagged, n-at))
		if err := t.ask(ctx, http.MethodPost, "/visit/"+subject, `{"events":[`+events[1:]+`],`+actor+`}`); err != nil {
			return err
		}
	}
	return nil
}

// conditions writes an event under ten conditions that nobody has asked for before.
func (t *target) conditions(ctx context.Context, _ int) error {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, `%s{"fail_if_events_match":{"types":["visit.was_unmade"],"tags":["of:%d"]}}`, strings.Repeat(",", min(1, i)), i)
	}
	return t.attempt(ctx, "/visit/_new/was_made", `{"data":{"of":[]},"conditions":[`+b.String()+`],`+actor+`}`)
}
