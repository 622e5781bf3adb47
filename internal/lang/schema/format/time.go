package format

import "strings"

// date is full-date of RFC 3339.
func date(s string) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	year, ok1 := number(s[:4])
	month, ok2 := number(s[5:7])
	day, ok3 := number(s[8:])
	return ok1 && ok2 && ok3 && month >= 1 && month <= 12 && day >= 1 && day <= daysIn(year, month)
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

// number reads a text of a few digits.
func number(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// clockTime is full-time of RFC 3339. A second of 60 is one where the time is 23:59 in UTC.
func clockTime(s string) bool {
	if len(s) < 9 || s[2] != ':' || s[5] != ':' {
		return false
	}
	hour, ok1 := number(s[:2])
	minute, ok2 := number(s[3:5])
	second, ok3 := number(s[6:8])
	if !ok1 || !ok2 || !ok3 || hour > 23 || minute > 59 || second > 60 {
		return false
	}
	s = s[8:]
	if s[0] == '.' {
		digits := 1
		for digits < len(s) && isDigit(s[digits]) {
			digits++
		}
		if digits == 1 {
			return false
		}
		s = s[digits:]
	}
	offset, ok := utcOffset(s)
	return ok && (second < 60 || (hour*60+minute-offset+2*24*60)%(24*60) == 23*60+59)
}

// utcOffset reads time-offset of RFC 3339 and returns it in minutes.
func utcOffset(s string) (int, bool) {
	if s == "Z" || s == "z" {
		return 0, true
	}
	if len(s) != 6 || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	hour, ok1 := number(s[1:3])
	minute, ok2 := number(s[4:])
	if !ok1 || !ok2 || hour > 23 || minute > 59 {
		return 0, false
	}
	if s[0] == '-' {
		return -hour*60 - minute, true
	}
	return hour*60 + minute, true
}

// dateTime is date-time of RFC 3339.
func dateTime(s string) bool {
	return len(s) > 11 && (s[10] == 'T' || s[10] == 't') && date(s[:10]) && clockTime(s[11:])
}

// duration is the grammar of RFC 3339, appendix A: no fractions, no gaps between units, weeks alone.
func duration(s string) bool {
	s, ok := strings.CutPrefix(s, "P")
	if !ok {
		return false
	}
	if rest, ok := amounts(s, "W"); ok && rest == "" {
		return true
	}
	days, ok := amounts(s, "YMD")
	if ok && days == "" {
		return true
	}
	if !ok {
		days = s
	}
	time, withTime := strings.CutPrefix(days, "T")
	if !withTime {
		return false
	}
	rest, ok := amounts(time, "HMS")
	return ok && rest == ""
}

// amounts reads numbers followed by units, which start anywhere in units and leave none out. It returns what follows
// and whether there was at least one.
func amounts(s, units string) (string, bool) {
	found := false
	for {
		digits := 0
		for digits < len(s) && isDigit(s[digits]) {
			digits++
		}
		if digits == 0 || digits == len(s) {
			return s, found && digits == 0
		}
		at := strings.IndexByte(units, s[digits])
		if at < 0 || found && at > 0 {
			return s, false
		}
		units, s, found = units[at+1:], s[digits+1:], true
	}
}
