package main

import "math"

// interval is a ratio with the bounds between which it lies with 95 % confidence.
type interval struct{ mean, low, high float64 }

// ratios returns the geometric mean of ratios that were measured in pairs, and Student's interval of their logarithms.
// Of fewer than two ratios nothing is known: the interval is all there is.
func ratios(all []float64) interval {
	n := float64(len(all))
	if n < 2 {
		return interval{math.NaN(), 0, math.Inf(1)}
	}
	sum := 0.0
	for _, r := range all {
		sum += math.Log(r)
	}
	mean := sum / n
	squares := 0.0
	for _, r := range all {
		squares += (math.Log(r) - mean) * (math.Log(r) - mean)
	}
	margin := student(len(all)-1) * math.Sqrt(squares/(n-1)/n)
	return interval{math.Exp(mean), math.Exp(mean - margin), math.Exp(mean + margin)}
}

// student returns the 0.975 quantile of Student's distribution with some degrees of freedom, to three digits.
func student(degrees int) float64 {
	table := []float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if degrees <= len(table) {
		return table[degrees-1]
	}
	// Cornish and Fisher's expansion, which is close from here on.
	const z = 1.959964
	d := float64(degrees)
	return z + (z*z*z+z)/(4*d) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*d*d)
}
