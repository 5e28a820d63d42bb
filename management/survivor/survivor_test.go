// SPDX-License-Identifier: Apache-2.0

package survivor

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// site is what a watch sees.
type site struct {
	stale   bool
	others  []string
	alive   []string
	deaf    error // of the gossip
	listens error // at the address of another one
}

func (s *site) watch(after time.Duration) *Watch {
	return &Watch{
		Self: "a", After: after, Logger: quiet(),
		View: func() *state.View { return &state.View{Stale: s.stale} },
		Alive: func(context.Context) (map[netip.Addr]bool, error) {
			alive := map[netip.Addr]bool{}
			for _, at := range s.alive {
				alive[netip.MustParseAddr(at)] = true
			}

			return alive, s.deaf
		},
		others: func() ([]string, error) { return s.others, nil },
		ask:    func(context.Context, []string) ([]etcd.Answer, error) { return nil, nil },
		listen: func(context.Context) error { return s.listens },
	}
}

func quiet() logrus.FieldLogger {
	log, _ := test.NewNullLogger()
	return log
}

var three = []string{"https://192.0.2.2:12379", "https://192.0.2.3:12379"}

// TestWatch tells when an instance goes on alone: all of the conditions have to hold, all the time.
func TestWatch(t *testing.T) {
	const after = time.Minute

	for name, c := range map[string]struct {
		patience time.Duration
		site     site
		unseen   bool // it has no view
		alone    bool
	}{
		"all others are gone":           {after, site{true, three, []string{"192.0.2.9"}, nil, nil}, false, true},
		"they were gone from the start": {after, site{false, three, []string{"192.0.2.1"}, nil, nil}, true, true},
		"the site chose otherwise":      {0, site{true, three, nil, nil, nil}, false, false},
		"the store answers":             {after, site{false, three, nil, nil, nil}, false, false},
		"one other lives":               {after, site{true, three, []string{"192.0.2.3"}, nil, nil}, false, false},
		"there is no other":             {after, site{true, nil, nil, nil, nil}, false, false},
		"the gossip does not speak":     {after, site{true, three, nil, errors.New("deaf"), nil}, false, false},
		"an etcd listens":               {after, site{true, three, nil, nil, errors.New("there")}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := c.site.watch(c.patience)
				if c.unseen {
					w.View = nil
				}

				ctx, cancel := context.WithTimeout(t.Context(), 10*after)
				defer cancel()

				begun := time.Now()
				err := w.Run(ctx)

				if alone := errors.Is(err, ErrAlone); alone != c.alone {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begun); c.alone && (took < after || took > after+2*every) {
					t.Errorf("it went on alone after %s", took)
				}
			})
		})
	}
}

// TestWatchUnseen ends at once where another one is there, and otherwise after its patience, however long a look takes.
func TestWatchUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{others: three, alive: []string{"192.0.2.3"}}
		w := s.watch(time.Minute)
		w.View = nil

		begun := time.Now()
		if err := w.Run(t.Context()); err != nil || time.Since(begun) > every {
			t.Errorf("with another one: %v after %s", err, time.Since(begun))
		}

		const look = 7 * time.Second

		s.alive = nil
		w.listen = func(context.Context) error { time.Sleep(look); return nil }
		begun = time.Now()

		if err := w.Run(t.Context()); !errors.Is(err, ErrAlone) || time.Since(begun) > time.Minute+3*look {
			t.Errorf("with slow looks: %v after %s", err, time.Since(begun))
		}
	})
}

// TestWatchForgets begins anew when another instance is seen in between.
func TestWatchForgets(t *testing.T) {
	s := &site{stale: true, others: three}

	synctest.Test(t, func(t *testing.T) {
		w := s.watch(time.Minute)

		for i := range 10 {
			s.alive = three[:0]
			if i%2 == 1 {
				s.alive = []string{"192.0.2.2"}
			}

			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			if err := w.Run(ctx); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
			cancel()
		}
	})
}

// side is a side of a split: its number, who went on alone, and who was lost then.
func side(number int64, by string, lost ...string) state.Epoch {
	e := state.Epoch{Number: number, Recovered: &state.Recovered{By: by, Lost: map[string]uint64{}}}
	for i, id := range lost {
		e.Recovered.Lost[id] = uint64(10 + i)
	}

	return e
}

// TestSplit tells which side of a split goes on, as an instance a judges it.
func TestSplit(t *testing.T) {
	t.Parallel()

	whole := state.Epoch{Number: 3}
	removing := state.Epoch{Removed: []string{"a"}}

	for name, c := range map[string]struct {
		own     state.Epoch
		answers []any // epochs, or what is none
		want    string
	}{
		"nobody answers":                          {whole, nil, ""},
		"another one has nothing":                 {whole, []any{nil}, ""},
		"the others are as they were":             {whole, []any{whole, whole}, ""},
		"another one went on without it":          {whole, []any{whole, side(9, "c", "a", "b")}, "c"},
		"another one went on, but with it":        {whole, []any{side(9, "c", "b")}, ""},
		"of two, the newest":                      {whole, []any{side(8, "b", "a", "c"), side(9, "c", "a", "b")}, "c"},
		"the same in another order":               {whole, []any{side(9, "c", "a", "b"), side(8, "b", "a", "c")}, "c"},
		"both went on, it is later":               {side(9, "a", "b", "c"), []any{side(8, "b", "a", "c")}, ""},
		"both went on, it is earlier":             {side(7, "a", "b", "c"), []any{side(8, "b", "a", "c")}, "b"},
		"at the same time, the higher id":         {side(7, "a", "b", "c"), []any{side(7, "b", "a", "c")}, "b"},
		"one that cannot be read hides none":      {whole, []any{"{", side(9, "c", "a", "b")}, "c"},
		"it joined a side that lost":              {side(7, "b", "c"), []any{side(9, "c", "b", "x")}, "c"},
		"it joined a side that is later":          {side(9, "b", "c"), []any{side(7, "c", "b", "x")}, ""},
		"it went on alone, and was removed":       {side(9, "a", "b", "c"), []any{removing}, "!"},
		"it was removed, and is told by its etcd": {whole, []any{removing}, ""},
		"the other one was removed": {
			state.Epoch{Number: 3, Removed: []string{"c"}}, []any{side(9, "c", "a", "b")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var answers []etcd.Answer

			for _, of := range c.answers {
				value, err := json.Marshal(of)
				errtest.None(t, err)

				switch text, broken := of.(string); {
				case broken:
					value = []byte(text)
				case of == nil:
					value = nil
				}

				answers = append(answers, etcd.Answer{Endpoint: "https://192.0.2.3:1", Value: value})
			}

			w := (&site{others: three}).watch(0)
			w.View = func() *state.View { return viewOf(c.own) }
			w.ask = func(context.Context, []string) ([]etcd.Answer, error) { return answers, nil }

			err := w.look(t.Context())
			split, _ := errors.AsType[*Split](err)

			switch {
			case c.want == "" && err != nil, c.want != "" && split == nil:
				t.Errorf("got %v", err)
			case c.want == "!" && !split.Removed, c.want != "" && c.want != "!" && split.Since.By != c.want:
				t.Errorf("got %+v", split)
			}
		})
	}
}

// TestSplitAsksFormerOnes: those that were lost are asked for as long as they may come back.
func TestSplitAsksFormerOnes(t *testing.T) {
	t.Parallel()

	own := side(7, "a", "b", "c")
	own.Recovered.Former = three

	w := (&site{}).watch(0)
	w.View = func() *state.View { return viewOf(own) }
	w.ask = func(_ context.Context, urls []string) ([]etcd.Answer, error) {
		if len(urls) != len(three) {
			t.Errorf("it asks %v", urls)
		}
		return nil, nil
	}

	errtest.None(t, w.look(t.Context()))
}

// TestCommon is about the last entry that both sides have, whoever went on from where.
func TestCommon(t *testing.T) {
	t.Parallel()

	own := func(entries map[string]uint64) state.Epoch {
		return state.Epoch{Recovered: &state.Recovered{By: "a", Lost: entries}}
	}

	for _, c := range []struct {
		other map[string]uint64
		own   state.Epoch
		want  uint64
	}{
		{map[string]uint64{"a": 10, "x": 110}, state.Epoch{}, 10},
		{map[string]uint64{"a": 100}, own(map[string]uint64{"c": 98}), 98},
		{map[string]uint64{"a": 98}, own(map[string]uint64{"c": 100}), 98},
		{nil, state.Epoch{}, 0},
	} {
		if got := common(Split{Self: "a", Since: state.Recovered{Lost: c.other}}, c.own); got != c.want {
			t.Errorf("%v and %+v: %d, want %d", c.other, c.own.Recovered, got, c.want)
		}
	}
}

// TestRun has daemons end one after the other.
func TestRun(t *testing.T) {
	t.Parallel()

	refused := inventory.Errorf(inventory.KindRefused, "another instance is there")
	broken := errors.New("broken")

	for name, c := range map[string]struct {
		daemons    []error // how they end, one after the other
		recoveries []error
		want       error
	}{
		"it ends well":                        {[]error{nil}, nil, nil},
		"it fails":                            {[]error{broken}, nil, broken},
		"it goes on alone, and ends":          {[]error{ErrAlone, nil}, []error{nil}, nil},
		"another one is there after all":      {[]error{ErrAlone, ErrAlone, nil}, []error{refused, nil}, nil},
		"it cannot go on alone":               {[]error{ErrAlone}, []error{broken}, broken},
		"joined with an error of its own end": {[]error{errors.Join(ErrAlone, broken), nil}, []error{nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			h := Host{
				DataDir: dir, Server: etcd.ServerOptions{Dir: dir}, After: time.Minute, Logger: quiet(),
				Recover: func(context.Context) error { return next(t, &c.recoveries) },
			}

			err := h.Run(t.Context(), func() error { return next(t, &c.daemons) })
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v", err)
			}
			if len(c.daemons)+len(c.recoveries) > 0 {
				t.Errorf("%v and %v were not asked for", c.daemons, c.recoveries)
			}
		})
	}
}

func next(t *testing.T, all *[]error) error {
	t.Helper()

	if len(*all) == 0 {
		t.Fatal("one more than expected")
	}
	err := (*all)[0]
	*all = (*all)[1:]

	return err
}

// TestSettle goes on with what was interrupted, and changes nothing where it cannot know.
func TestSettle(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	recovered := 0
	h := Host{
		DataDir: dir, Server: etcd.ServerOptions{Dir: dir}, Logger: quiet(),
		Recover: func(context.Context) error { recovered++; return nil },
	}

	errtest.None(t, os.WriteFile(filepath.Join(dir, "recovering"), nil, 0o600))

	for want, after := range []time.Duration{0, time.Minute} {
		h.After = after
		if err := h.Settle(t.Context()); err != nil || recovered != want {
			t.Errorf("after %s: %d recoveries, %v", after, recovered, err)
		}
	}

	errtest.None(t, os.WriteFile(h.path(), []byte("{"), 0o600))
	if err := h.Settle(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a damaged file: %v", err)
	}

	errtest.None(t, os.Remove(h.path()))
	errtest.None(t, os.Mkdir(h.path(), 0o700))
	if err := h.Settle(t.Context()); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// TestLater orders the sides of a split.
func TestLater(t *testing.T) {
	t.Parallel()

	order := []state.Epoch{{}, {Number: 5}, side(5, "a"), side(5, "b"), side(6, "a"), {Number: 7}}
	for i, e := range order {
		for j, other := range order {
			if got := e.Later(other); got != (i > j) {
				t.Errorf("%+v after %+v: %t", e, other, got)
			}
		}
	}
}

// viewOf returns a view with an epoch.
func viewOf(e state.Epoch) *state.View {
	v := &state.View{}
	v.View = record.Set(v.View, &state.Epochs, "", &e)

	return v
}
