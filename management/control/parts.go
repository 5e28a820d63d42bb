// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
)

// Parts are the parts of a process, in the order of their start. Stop ends them in reverse.
type Parts struct {
	Logger logrus.FieldLogger

	mu       sync.Mutex // guards loops
	loops    []*Loop    // that are measured
	teardown []cleanup
}

// cleanup is a named step of the teardown.
type cleanup struct {
	name string
	do   func(context.Context) error
}

// OnStop adds a step to the teardown.
func (p *Parts) OnStop(name string, do func(context.Context) error) {
	p.teardown = append(p.teardown, cleanup{name, do})
}

// OnStopOf adds a step that cannot fail to the teardown.
func (p *Parts) OnStopOf(name string, stop func()) {
	p.OnStop(name, func(context.Context) error { stop(); return nil })
}

// Measure adds loops to the metrics.
func (p *Parts) Measure(loops ...*Loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = append(p.loops, loops...)
}

// Run starts loops, which go on until Stop.
func (p *Parts) Run(ctx context.Context, loops ...*Loop) {
	p.Measure(loops...)

	for _, l := range loops {
		l.Start(ctx)
		p.OnStopOf(l.Name, l.Stop)
	}
}

// Go runs a part that ends with its context. Stop ends it, not ctx, and waits for it.
func (p *Parts) Go(ctx context.Context, name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})

	go func() {
		defer close(ended)
		run(ctx)
	}()
	p.OnStopOf(name, func() { cancel(); <-ended })
}

// Emit emits the metrics of the loops.
func (p *Parts) Emit(emit func(name string, value float64, labels ...string)) {
	gauge := map[bool]float64{true: 1}

	p.mu.Lock()
	loops := p.loops
	p.mu.Unlock()

	for _, l := range loops {
		s := l.Status()
		emit("clusterm_loop_on_duty", gauge[s.OnDuty], s.Name)
		emit("clusterm_loop_failing", gauge[s.Failure != ""], s.Name)
		emit("clusterm_loop_rounds_total", float64(s.Rounds), s.Name)
		emit("clusterm_loop_failures_total", float64(s.Failures), s.Name)
	}
}

// Stop ends all parts in the reverse order of their start. When ctx ends it waits for none of them any more.
func (p *Parts) Stop(ctx context.Context) error {
	var errs []error
	for _, step := range slices.Backward(p.teardown) {
		p.Logger.WithField("part", step.name).Debug("stopping")

		// A step that ignores ctx must not keep the others from their turn.
		done := make(chan error, 1)
		go func() { done <- step.do(ctx) }()

		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
			}
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s did not end in time", step.name))
		}
	}

	p.teardown = nil

	return errors.Join(errs...)
}
