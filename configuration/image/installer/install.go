// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/configuration/image/disk"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

const (
	// installTime bounds an installation.
	installTime = 12 * time.Hour
	// stallTime is how long nothing may come of an image until a try ends.
	stallTime = time.Minute
	// maxWrites bounds the tries to write an image after failures of the network, and maxOther those after other
	// content has come.
	maxWrites, maxOther = 3, 2
	// progressTime is the time between two messages of progress. Every second one goes to the console, too.
	progressTime = 5 * time.Second
	// maxFailure bounds the text of a failure, in bytes.
	maxFailure = 2000
)

// installation writes the image of an order to a disk of the machine.
type installation struct {
	Install

	manager  *reporter
	problems []string // for each message
	open     func(facts.Disk) (diskFile, int64, error)
	client   http.Client
	stall    time.Duration
	every    time.Duration   // between two messages of progress
	delays   backoff.BackOff // between tries
}

// diskFile is an open disk.
type diskFile interface {
	disk.Target
	io.Closer
}

func newInstallation(order Install, manager *reporter, problems []string) *installation {
	return &installation{
		Install:  order,
		manager:  manager,
		client:   newClient(),
		stall:    stallTime,
		every:    progressTime,
		problems: inventory.ShortenAll(problems, maxProblems, maxProblem),
		open:     func(d facts.Disk) (diskFile, int64, error) { return disk.Open(d) },
		delays: &backoff.ExponentialBackOff{
			InitialInterval: 10 * time.Second,
			Multiplier:      3,
			MaxInterval:     time.Minute,
		},
	}
}

// install carries out an order after the answer to the facts, and returns what the machine does then.
func install(
	order *Install, manager *reporter, problems []string, found facts.Facts, then string,
) (string, error) {
	if order == nil || manager == nil || then != report.Continue {
		return then, nil
	}

	then, err := newInstallation(*order, manager, problems).run(found)
	if then == report.Continue {
		then = report.Wait // nothing is left to do
	}

	return then, err
}

// run chooses the disk, writes the image, and returns what the machine does then. It reports each step.
func (i *installation) run(found facts.Facts) (then string, err error) {
	m := report.Message{Stage: report.Writing, Total: i.Image.Size, Problems: i.problems}

	d, err := disk.Choose(i.RootDevice, found.Disks)
	if err != nil {
		return i.fail(m, false, err)
	}
	m.Disk = d.String()

	to, size, err := i.open(d)
	if err != nil {
		return i.fail(m, false, err)
	}
	defer to.Close()

	say(i.manager.console, "The image will be written to the disk %s.", m.Disk)
	then, err = i.manager.send(m)
	if err != nil || then != report.Continue {
		return then, err
	}

	touched, err := i.write(m, to, size)
	if err != nil {
		return i.fail(m, touched, err)
	}

	say(i.manager.console, "The image is on the disk %s.", m.Disk)
	m.Stage, m.Written = report.Installed, m.Total

	return i.manager.send(m)
}

// fail reports why nothing is installed, which it returns, too.
func (i *installation) fail(m report.Message, touched bool, cause error) (string, error) {
	state := "No disk was touched"
	if touched {
		state = "Nothing on the disk " + m.Disk + " boots any more"
	}

	m.Stage, m.Message = report.Failed, fmt.Sprintf("%s. %s.", inventory.Shorten(cause.Error(), maxFailure), state)
	say(i.manager.console, "Nothing is installed: %s", m.Message)

	return i.manager.send(m)
}

// write tries to write the image, and reports the progress meanwhile. A manager that does not want the machine any more
// ends it.
func (i *installation) write(m report.Message, to disk.Target, size int64) (touched bool, err error) {
	ctx, end := context.WithTimeout(context.Background(), installTime)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)

	var written atomic.Int64
	var progress sync.WaitGroup
	progress.Go(func() { i.tell(ctx, cancel, m, &written) })
	defer progress.Wait()
	defer cancel(nil)

	other := 0
	try := func() (bool, error) {
		written.Store(0)
		now, err := i.try(ctx, to, size, written.Store)
		touched = touched || now

		switch kind := inventory.KindOf(err); {
		case err == nil:
			return now, nil
		case kind == inventory.KindConflict:
			if other++; other == maxOther {
				return now, backoff.Permanent(err)
			}
		case kind != inventory.KindUnavailable || ctx.Err() != nil:
			return now, backoff.Permanent(err)
		}

		return now, err
	}
	again := func(err error, _ time.Duration) { say(i.manager.console, "%s Trying again.", sentence(err)) }

	_, err = backoff.Retry(ctx, try, backoff.WithBackOff(i.delays), backoff.WithNotify(again),
		backoff.WithMaxTries(maxWrites), backoff.WithMaxElapsedTime(installTime))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}

	return touched, err
}

// tell reports the progress until ctx ends, with one try for each message.
func (i *installation) tell(
	ctx context.Context,
	cancel context.CancelCauseFunc,
	m report.Message,
	written *atomic.Int64,
) {
	ticker := time.NewTicker(i.every)
	defer ticker.Stop()

	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		m.Written = written.Load()
		if n%2 == 0 {
			say(i.manager.console, "%d %% of the image are on the disk.", m.Written*100/m.Total)
		}

		body, err := json.Marshal(m)
		if err == nil {
			_, err = i.manager.try(ctx, body)
		}
		if inventory.KindOf(err) == inventory.KindRefused {
			cancel(err)
		}
	}
}

// try fetches the image and writes it.
func (i *installation) try(
	ctx context.Context, to disk.Target, size int64, progress func(written int64),
) (touched bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stalled := inventory.Errorf(inventory.KindUnavailable, "nothing of the image came for %s", i.stall).
		Do("check the network between the machine and the manager")
	idle := time.AfterFunc(i.stall, func() { cancel(stalled) })
	defer idle.Stop()

	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.Image.URL, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+i.manager.to.Token)

	response, err := i.client.Do(request)
	if err != nil {
		return false, inventory.Errorf(inventory.KindUnavailable, "cannot fetch the image: %w", err).
			Do("look whether the manager runs, and whether this network reaches it")
	}
	defer response.Body.Close()
	idle.Stop()

	length := response.ContentLength
	switch {
	case report.Final(response.StatusCode):
		return false, inventory.Errorf(inventory.KindRefused, "cannot fetch the image: the manager answered %s",
			response.Status).Do("look whether the job still runs, and install the machine again")
	case response.StatusCode != http.StatusOK:
		return false, inventory.Errorf(inventory.KindUnavailable, "cannot fetch the image: the manager answered %s",
			response.Status).Do("look what the log of the manager says")
	case length >= 0 && length != i.Image.Size:
		return false, inventory.Errorf(inventory.KindConflict, "the image has %d bytes, not %d", length, i.Image.Size).
			Do("verify the image on each instance, and add it again if it is damaged")
	}

	image := disk.Image{
		Digest: i.Image.Digest, Size: i.Image.Size, Compression: i.Image.Compression, Virtual: i.Image.Virtual,
	}

	return disk.Write(ctx, to, size, &timed{response.Body, idle, i.stall}, image, disk.Seed(i.Seed), progress)
}

// timed is a body of which each read is timed.
type timed struct {
	io.Reader

	timer *time.Timer
	limit time.Duration
}

// Read implements io.Reader.
func (t *timed) Read(p []byte) (int, error) {
	t.timer.Reset(t.limit)
	defer t.timer.Stop()

	return t.Reader.Read(p)
}
