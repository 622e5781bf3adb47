//go:build !race

package httpapi_test

// held tells that answers are held against the documents. It takes longer than all else that the tests do, most of all
// under the race detector, which has nothing to find in it; so it is left out there, and all tests run without the race
// detector as well.
const held = true
