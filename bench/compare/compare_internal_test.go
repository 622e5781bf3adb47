package main

import (
	"bufio"
	"math"
	"strings"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 0.001*math.Max(1, math.Abs(b)) }

func TestRatios(t *testing.T) {
	// Logarithms 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, and 4.303 * 0.1 / sqrt(3) to either side.
	got := ratios([]float64{math.Exp(0.1), math.Exp(0.2), math.Exp(0.3)})
	margin := 4.303 * 0.1 / math.Sqrt(3)
	if !near(got.mean, math.Exp(0.2)) || !near(got.low, math.Exp(0.2-margin)) || !near(got.high, math.Exp(0.2+margin)) {
		t.Errorf("the interval is %+v", got)
	}
	if got := ratios([]float64{0.5, 2, 1, 1}); !near(got.mean, 1) || got.low >= 1 || got.high <= 1 {
		t.Errorf("ratios around 1 give %+v", got)
	}
	if got := ratios([]float64{0.9}); got.low != 0 || !math.IsInf(got.high, 1) {
		t.Errorf("one ratio gives %+v", got)
	}
}

func TestStudent(t *testing.T) {
	for degrees, want := range map[int]float64{
		1: 12.706, 9: 2.262, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980, 1_000_000: 1.960,
	} {
		if got := student(degrees); math.Abs(got-want) > 0.001 {
			t.Errorf("%d degrees of freedom: %.4f, want %.3f", degrees, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	slow := 0
	for _, r := range []interval{{0.95, 0.93, 0.98}, {0.97, 0.97, 0.97}, {1.2, 1.1, 1.3}} {
		if text := verdict(r, 0.97, &slow); text != "" || slow != 0 {
			t.Errorf("%+v is %q", r, text)
		}
	}
	if verdict(interval{0.95, 0.94, 0.96}, 0.97, &slow) == "" || slow != 1 {
		t.Error("an interval below the bar passes")
	}
}

func TestAnswer(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\nbad"))
	if err := answer(r); err != nil {
		t.Error(err)
	}
	if err := answer(r); err == nil || !strings.Contains(err.Error(), "409 Conflict: bad") {
		t.Errorf("a conflict is %v", err)
	}
	if err := answer(r); err == nil {
		t.Error("the end is an answer")
	}
}

func TestNanoseconds(t *testing.T) {
	if got, err := nanoseconds("BenchmarkOperation/increment-2  \t 1234\t 321.5 ns/op\t 0 B/op\n", "x"); err != nil || got != 321.5 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := nanoseconds("PASS\n", "x"); err == nil {
		t.Error("no benchmark is no error")
	}
}
