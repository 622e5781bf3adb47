//go:build !race

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/work/worktest"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// mostTime is much more than the second of the processor that a write or a read may take: the process does other things
// meanwhile, and a machine that is busy takes longer for everything.
const mostTime = 6 * time.Second

func oneOf(t *rapid.T, label string, texts ...string) string {
	return rapid.SampledFrom(texts).Draw(t, label)
}

// hostileOperand draws an operand of a condition or a part of a template. bound are the names that it may use.
func hostileOperand(t *rapid.T, bound []string) string {
	return oneOf(t, "operand", append([]string{
		`"$.data.list"`, `"$.data.o"`, `"$.state.list"`, `"$.state.o?"`, `"$.data.text"`, `"$.key"`, `0`, `"x"`,
		`[1,2,{"n":1}]`,
	}, bound...)...)
}

// hostileList draws where a condition, a map or an operation takes its elements from.
func hostileList(t *rapid.T) string { return oneOf(t, "list", `"$.data.list"`, `"$.state.list"`) }

// hostileCondition draws a predicate that goes through lists, inside each other.
func hostileCondition(t *rapid.T, depth int, bound []string) string {
	operand := func() string { return hostileOperand(t, bound) }
	if depth == 0 {
		switch rapid.IntRange(0, 4).Draw(t, "predicate") {
		case 0:
			return fmt.Sprintf(`{"in":[%s,%s]}`, operand(), hostileList(t))
		case 1:
			return fmt.Sprintf(`{"equals":[%s,%s]}`, operand(), operand())
		case 2:
			return fmt.Sprintf(`{"subset_of":{"items":%s,"array":%s}}`, hostileList(t), hostileList(t))
		case 3:
			return fmt.Sprintf(`{"not_in":[%s,%s]}`, operand(), hostileList(t))
		default:
			return fmt.Sprintf(`{"gt":[%s,%s]}`, operand(), operand())
		}
	}
	name := fmt.Sprintf("$v%d", depth)
	sub := func(more ...string) string { return hostileCondition(t, depth-1, append(more, bound...)) }
	switch rapid.IntRange(0, 4).Draw(t, "predicate") {
	case 0:
		return fmt.Sprintf(`{"some":{"in":%s,"as":"%s","match":%s}}`, hostileList(t), name, sub(`"`+name+`"`))
	case 1:
		return fmt.Sprintf(`{"every":{"in":%s,"as":"%s","match":%s}}`, hostileList(t), name, sub(`"`+name+`"`))
	case 2:
		return fmt.Sprintf(`{"and":[%s,%s]}`, sub(), sub())
	case 3:
		return fmt.Sprintf(`{"or":[%s,%s,%s]}`, sub(), sub(), sub())
	default:
		return fmt.Sprintf(`{"not":%s}`, sub())
	}
}

// hostileTemplate draws the data of an implied event.
func hostileTemplate(t *rapid.T, depth int, bound []string) string {
	if depth == 0 {
		return hostileOperand(t, bound)
	}
	var parts []string
	for range rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "parts") {
		parts = append(parts, hostileTemplate(t, depth-1, bound))
	}
	all := strings.Join(parts, ",")
	switch rapid.IntRange(0, 3).Draw(t, "template") {
	case 0:
		return `{"merge":[` + all + `]}`
	case 1:
		return `{"concat":["a",` + all + `]}`
	case 2:
		return `{"coalesce":["$.data.none",` + all + `]}`
	default:
		return `{"all":[` + all + `]}`
	}
}

// hostileImplication draws one way to make much of an event.
func hostileImplication(t *rapid.T) string {
	emit := func(bound ...string) string {
		return fmt.Sprintf(`"emit":{"aggregate_type":"a","id":"$.key","event_type":"was_seen","data":{"all":%s}}`,
			hostileTemplate(t, rapid.IntRange(0, 2).Draw(t, "depth of the template"), bound))
	}
	depth := rapid.IntRange(0, 3).Draw(t, "depth of the condition")
	if rapid.Bool().Draw(t, "of each") {
		return fmt.Sprintf(`{"map":{"in":%s,"as":"$e","condition":%s,%s}}`, hostileList(t), hostileCondition(t, depth, []string{`"$e"`}), emit(`"$e"`))
	}
	return fmt.Sprintf(`{"condition":%s,%s}`, hostileCondition(t, depth, nil), emit())
}

// hostileOperation draws an operation of a handler that goes through lists.
func hostileOperation(t *rapid.T) string {
	condition := func(bound ...string) string {
		c := hostileCondition(t, rapid.IntRange(0, 2).Draw(t, "depth of the condition"), bound)
		return strings.ReplaceAll(c, "$.state", "@")
	}
	switch rapid.IntRange(0, 6).Draw(t, "operation") {
	case 0:
		return fmt.Sprintf(`{"if":%s,"then":{"set":{"target":"ran","value":true}}}`, condition())
	case 1:
		return fmt.Sprintf(`{"filter":{"target":"list","as":"$f","keep":%s}}`, condition(`"$f"`))
	case 2:
		return `{"append":{"target":"list","value":"$.data.list"}}`
	case 3:
		return `{"append_unique":{"target":"list","value":"$.data.o"}}`
	case 4:
		return `{"update_where":{"target":"list","match":{"n":1},"merge":{"m":"$.data.list"}}}`
	case 5:
		return `{"set":{"target":"o","value":"$.data.o"}}`
	default:
		return fmt.Sprintf(`{"map":{"target":"list","as":"$m","apply":[{"set":{"target":"k","value":%s}}]}}`, oneOf(t, "value", `"$m"`, `"$.data.list"`, `1`))
	}
}

func joined(t *rapid.T, label string, most int, draw func(t *rapid.T) string) string {
	var all []string
	for range rapid.IntRange(0, most).Draw(t, label) {
		all = append(all, draw(t))
	}
	return strings.Join(all, ",")
}

// hostileData draws the data of an event: long lists and objects of many members.
func hostileData(t *rapid.T) string {
	elem := oneOf(
		t, "element", `0`, `"x"`, `{}`, `{"n":1}`, `{"n":1,"m":[1,2,3]}`, `[[1],[2]]`, `"`+strings.Repeat("y", 300)+`"`,
	)
	n := rapid.SampledFrom([]int{1, 30, 2000, 40_000}).Draw(t, "elements")
	members := rapid.SampledFrom([]int{1, 30, 3000}).Draw(t, "members")
	return `{"list":[` + repeated(elem, n) + `],"o":{` + strings.TrimSuffix(manyMembers(members), ",") + `},"text":"` +
		strings.Repeat("z", members) + `"}`
}

// TestRandomHostileSpecs writes events of random hostile specs and reads what became of them. Whatever the spec and the
// events are, each takes about a second of the processor at most, and what was admitted can be folded.
func TestRandomHostileSpecs(t *testing.T) {
	f := newFixture(t, engine.Options{})
	serial := 0
	check := func(rt *rapid.T) {
		src := `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
			"was_set":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]},
			"was_seen":{"schema":{},"handler":[]},
			"was_sent":{"schema":{},"handler":[` + joined(rt, "operations", 4, hostileOperation) + `],"implications":[` + joined(rt, "implications", 4, hostileImplication) + `]}}}}}`
		f.DeploySource(t, src)
		serial++
		aggregate := fmt.Sprintf("0f000000-0000-4000-8000-%012d", serial)
		timed := func(what string, work func() error) error {
			start := worktest.ProcessorTime(rt)
			err := work()
			if took := worktest.Since(rt, start); took > mostTime {
				rt.Errorf("%s took %v of the processor (%v) under %.3000s", what, took, err, src)
			}
			e, ok := errors.AsType[*j17.Error](err)
			if err != nil && (!ok || e.Code == j17.CodeInternal || e.Code == j17.CodeBusy) {
				rt.Fatalf("%s: %v under %.3000s", what, err, src)
			}
			return err
		}
		write := func(event, data string) error {
			c := enginetest.Command(t, "a/"+aggregate+"/"+event, `{"data":`+data+`,`+meta+`}`)
			return timed(event, func() error { _, err := f.Execute(t.Context(), c); return err })
		}
		if err := write("was_set", hostileData(rt)); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 2).Draw(rt, "times") {
			_ = write("was_sent", hostileData(rt)) // may be too much
		}
		read := func() error {
			_, err := f.Load(t.Context(), tenant, "a", aggregate, engine.LoadOptions{Replay: true})
			return err
		}
		if err := timed("the read", read); err != nil {
			rt.Errorf("what was admitted cannot be folded: %v under %.3000s", err, src)
		}
	}
	rapid.Check(t, check)
}
