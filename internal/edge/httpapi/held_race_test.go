//go:build race

package httpapi_test

// held is false: see where it is true.
const held = false
