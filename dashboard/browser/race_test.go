//go:build race

// No test of the dashboard runs under the race detector: it would find nothing that the tests of the server do not, and
// a page that waits five times longer for each answer is another page.

package browser_test
