package part

// Metric is a number that a part counts or measures, read when somebody asks.
type Metric struct {
	Name, Help string
	// Counter tells that it counts since the start of the program, and never falls.
	Counter bool
	// Labels tell metrics of one name apart; nil for none.
	Labels map[string]string
	Read   func() float64
	// Varying are the names of labels whose values are only known when the metric is read. Each, in the place of Read,
	// then returns what there is, with the values in this order; whoever counts bounds how much that is.
	Varying []string
	Each    func() []Labeled
}

// Labeled is one value of a metric, with those of its labels.
type Labeled struct {
	Labels []string
	Value  float64
}

// Counter returns a metric that counts.
func Counter(name, help string, read func() uint64) Metric {
	return Metric{Name: name, Help: help, Counter: true, Read: func() float64 { return float64(read()) }}
}

// Gauge returns a metric that measures.
func Gauge(name, help string, read func() float64) Metric {
	return Metric{Name: name, Help: help, Read: read}
}

// With returns a metric with a label.
func (m Metric) With(label, value string) Metric {
	m.Labels = map[string]string{label: value}
	return m
}
