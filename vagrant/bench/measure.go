// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// row is one line of the table: two functions to time, and the floor of their ratio. Its
// exported fields are the JSON of a run.
type row struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Rounds   int     `json:"rounds"`
	Product  float64 `json:"product"`            // the median, or the statistic in the name
	Against  string  `json:"against,omitempty"`  // the baseline
	Baseline float64 `json:"baseline,omitempty"` // likewise
	Ratio    float64 `json:"ratio,omitempty"`    // product to baseline
	Floor    string  `json:"floor,omitempty"`    // "": the ratio is only reported
	OK       bool    `json:"ok"`
	// Again marks the second measurement of a row that missed its floor.
	Again bool   `json:"again,omitempty"`
	Note  string `json:"note,omitempty"`

	floor             floor
	product, baseline side                    // no baseline: the floor is absolute
	summarize         func([]float64) float64 // reduces the rounds to one figure; nil: the median
	note              func() string           // a note that is known after the measurement
}

// side measures the product or the baseline once, in the row's unit. It fails by check or must.
type side func() float64

// floor is the bound of a row.
type floor struct {
	text string
	ok   func(product, baseline float64) bool
}

// atLeast is a floor for figures of which more is better: the product must reach this
// share of the baseline.
func atLeast(share float64) floor {
	return floor{fmt.Sprintf(">= %g", share), func(p, b float64) bool { return p >= share*b }}
}

// atMost is a floor for figures of which less is better: the product must not exceed
// factor times the baseline plus a constant in the row's unit.
func atMost(factor, constant float64, text string) floor {
	return floor{text, func(p, b float64) bool { return p <= factor*b+constant }}
}

// measure measures both sides of a row in turn and adds it to the report. A row that misses its
// floor is measured once more.
func (b *bench) measure(r row) {
	attempts := 2
	if b.rounds > 0 {
		r.Rounds, attempts = b.rounds, 1
	}

	for attempt := range attempts {
		r.Again = attempt > 0
		r.take()

		if r.Again {
			// The first result stays in the table, above this one.
			first := &b.out.Rows[len(b.out.Rows)-1]
			first.Floor, first.Note = "", "missed "+r.Floor+"; measured again"
		}

		b.out.Rows = append(b.out.Rows, r)

		if r.OK || r.Floor == "" {
			break
		}
	}
}

// take measures the rounds of the row once.
func (r *row) take() {
	var product, baseline []float64

	for round := range r.Rounds {
		sides := []func(){
			func() { product = append(product, r.product()) },
			func() {
				if r.baseline != nil {
					baseline = append(baseline, r.baseline())
				}
			},
		}

		// Neither side always profits from the other's warm caches.
		if round%2 == 1 {
			slices.Reverse(sides)
		}

		for _, do := range sides {
			do()
		}
	}

	summarize := r.summarize
	if summarize == nil {
		summarize = median
	}
	r.Product = summarize(product)
	if r.baseline != nil {
		r.Baseline = summarize(baseline)
		r.Ratio = r.Product / r.Baseline
	}

	r.Floor, r.OK = r.floor.text, r.floor.ok == nil || r.floor.ok(r.Product, r.Baseline)
	if r.note != nil {
		r.Note = r.note()
	}

	r.log(product, baseline)
}

// log prints the figures of the row, and of its rounds.
func (r *row) log(product, baseline []float64) {
	verdict, against := "misses", ""
	if r.OK {
		verdict = "reaches"
	}
	if r.baseline != nil {
		against = fmt.Sprintf(" against %s, ratio %.2f", figure(r.Baseline), r.Ratio)
	}

	fmt.Fprintf(os.Stderr, "bench: %s: %s %s%s (%s %s)\nbench:   product %.4g\nbench:   baseline %.4g\n", r.Name,
		figure(r.Product), r.Unit, against, verdict, cmp.Or(r.Floor, "no floor"), product, baseline)
}

// report is the result of a run.
type report struct {
	Time     time.Time `json:"time"`
	Machine  string    `json:"machine"`
	Nodes    int       `json:"nodes"`
	Rows     []row     `json:"rows"`
	Failures []string  `json:"failures,omitempty"` // rows that could not be measured, with the reason
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d nodes, %s\n\n", r.Time.Format(time.RFC3339), r.Nodes, r.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tPRODUCT\tBASELINE\tUNIT\tRATIO\tFLOOR\t\tAGAINST")

	notes := ""

	for _, row := range r.Rows {
		verdict := "ok"
		switch {
		case row.Floor == "":
			verdict = "-"
		case !row.OK:
			verdict = "MISSED"
		}

		if row.Again {
			verdict += " (again)"
		}

		base, ratio := "", ""
		if row.Against != "" {
			base, ratio = figure(row.Baseline), fmt.Sprintf("%.2f", row.Ratio)
		}
		cells := []string{row.Name, figure(row.Product), base, row.Unit, ratio, row.Floor, verdict, row.Against}
		fmt.Fprintln(t, strings.Join(cells, "\t"))

		if row.Note != "" {
			notes += fmt.Sprintf("\n%s: %s\n", row.Name, row.Note)
		}
	}

	_ = t.Flush()

	for _, f := range r.Failures {
		notes += fmt.Sprintf("\nnot measured: %s\n", f)
	}

	fmt.Fprint(w, notes)
}

func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.3f", f)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// p99 is the 99th percentile.
func p99(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)*99/100]
}

// failure ends the measurement of a group by a panic, as Fatal ends a test.
type failure struct{ error }

// check ends the measurement of the group if there is an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns the value, and ends the measurement of the group if there is an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// fail ends the measurement of the group.
func fail(format string, args ...any) { check(fmt.Errorf(format, args...)) }

// try returns the error of a check that ended do.
func try(do func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()

	do()

	return nil
}

// together calls do n times at once, and waits for all of them.
func together(n int, do func(i int)) {
	errs := make([]error, n)

	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = try(func() { do(i) }) })
	}

	all.Wait()
	check(errors.Join(errs...))
}

// timed returns how long do takes, in seconds.
func timed(do func()) float64 {
	begun := time.Now()
	do()
	return time.Since(begun).Seconds()
}
