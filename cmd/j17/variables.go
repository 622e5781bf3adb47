package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"j17/internal/lang/diag"
)

// variablePrefix begins the names of variables that are settings of this program.
const variablePrefix = "J17_"

// variableOf is the variable that sets a flag of 'j17 serve'.
func variableOf(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// otherVariables are the variables that set no flag of 'j17 serve'.
func otherVariables() []string {
	return []string{
		// Of the commands that talk to a server, and of those that read buckets.
		"J17_CA_FILE", "J17_CONTEXT", "J17_DATA", "J17_ENV", "J17_INSTANCE", "J17_KEY", "J17_KEY_FILE", "J17_TOKEN",
		"J17_TOKEN_FILE", "J17_URL",
		"J17_S3_ACCESS_KEY", "J17_S3_ACCESS_KEY_FILE", "J17_S3_SECRET_KEY", "J17_S3_SECRET_KEY_FILE",

		// Those of the documentation's examples, which are run as tests.
		"J17_READ_KEY", "J17_STAGING_KEY", "J17_OPERATOR_PASSWORD",

		// Of tests, benchmarks and acceptance suites.
		"J17_ALL_TOOLS", "J17_AXE", "J17_BENCH", "J17_BENCH_ROWS", "J17_BIN", "J17_DEV_ARGS", "J17_ENVIRONMENTS",
		"J17_PATIENCE", "J17_SECRET_FOR_THIS_TEST", "J17_SHARED", "J17_SHOTS", "J17_SOAK", "J17_TEST_LIFELINE",
		"J17_TEST_PGTEST_CHILD", "J17_TEST_STORE", "J17_TEST_UNWATCHED",
	}
}

// unknownVariables returns an error for each variable that is named like a setting that does not exist. environ has the
// form of os.Environ, and flags are those of 'j17 serve'. An empty variable counts as one that is not set.
func unknownVariables(environ []string, flags *pflag.FlagSet) []error {
	known := otherVariables()
	flags.VisitAll(func(f *pflag.Flag) {
		if isSetting(f) || f.Name == configFlag {
			known = append(known, variableOf(f.Name))
		}
	})
	slices.Sort(known)

	var found []error
	for _, text := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(text, "=")
		if value == "" || !strings.HasPrefix(name, variablePrefix) || slices.Contains(known, name) ||
			ofService(name, value) {
			continue
		}
		hint := ""
		if near := diag.Nearest(name, known); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", near)
		}
		found = append(found, fmt.Errorf("there is no variable %s%s", plain(name), hint))
	}
	return found
}

// isSetting reports whether a flag of 'j17 serve' can be set in the file of --config, too.
func isSetting(f *pflag.Flag) bool {
	return f.Name != configFlag && f.Name != checkFlag && f.Name != "help"
}

// ofService reports whether a variable is one of those that Kubernetes sets in each container for a service called j17,
// or j17 with a hyphen and more.
func ofService(name, value string) bool {
	if regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?$`).MatchString(name) {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
