// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/cmd/clusterm/processtest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func TestMain(m *testing.M) {
	unix.Umask(0o022) // the manager refuses playbooks that a group can write

	var cancel context.CancelFunc
	all, cancel = context.WithTimeout(context.Background(), 5*time.Minute)

	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the examples' manager:", err)
		code = 1
	}

	cancel()
	os.Exit(code)
}

// all is the context of all examples.
var all context.Context

// stop ends the manager of the examples, if it was started.
var stop = func() error { return nil }

// socket starts the manager of the examples on first use and returns its socket.
// It is the real program with a real etcd and a fake ansible-playbook. It has six
// nodes: host1-a is in service as the master, host2-b to host6-f are unallocated.
var socket = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "cm")
	if err != nil {
		panic(err)
	}
	stop = func() error { return os.RemoveAll(dir) }

	if err := start(dir); err != nil {
		panic(err)
	}

	return filepath.Join(dir, "s")
})

func start(dir string) error {
	const testdata = "../daemon/testdata"

	fake, err := filepath.Abs(filepath.Join(testdata, "fake", "ansible-playbook"))
	if err != nil {
		return err
	}

	if err := os.CopyFS(filepath.Join(dir, "playbooks"), os.DirFS(filepath.Join(testdata, "playbooks"))); err != nil {
		return err
	}

	config := filepath.Join(dir, "clusterm.yaml")

	text := fmt.Sprintf(
		"data_dir: %[1]s/d\nsocket: %[1]s/s\ngossip: off\nnode: {label: manager, serial: \"1\"}\n"+
			"playbooks: %[1]s/playbooks\nansible_playbook: %[2]s\n",
		dir,
		fake,
	)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}

	// Linking the manager into this test takes longer than running it.
	program, err := processtest.Build(dir)
	if err != nil {
		return err
	}

	var output bytes.Buffer
	manager := exec.CommandContext(all, program, "--config", config)
	manager.Cancel = func() error { return manager.Process.Signal(syscall.SIGTERM) }
	manager.Stdout, manager.Stderr, manager.WaitDelay = &output, &output, time.Minute

	// A failed example ends this process at once.
	manager.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}

	if err := manager.Start(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(all, time.Minute)
	defer cancel()

	ended := make(chan error, 1)
	go func() { ended <- manager.Wait() }()
	stop = func() error {
		err := manager.Process.Signal(syscall.SIGTERM)
		if err == nil {
			err = <-ended
		}
		return errors.Join(err, os.RemoveAll(dir))
	}

	c, err := client.New(client.Options{Socket: filepath.Join(dir, "s")})
	if err != nil {
		return err
	}

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for _, err := c.Health(ctx); err != nil; _, err = c.Health(ctx) {
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			return fmt.Errorf("clusterm has ended: %w\n%s", err, &output)
		case <-ctx.Done():
			return err
		}
	}

	var nodes []api.LegacyEventNode
	for i := range 6 {
		nodes = append(
			nodes,
			api.LegacyEventNode{
				Label:  fmt.Sprintf("host%d", i+1),
				Serial: string(rune('a' + i)),
				Addr:   fmt.Sprintf("10.0.0.%d", i+1),
			},
		)
	}

	if err := c.Report(ctx, true, nodes); err != nil {
		return err
	}

	j, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"host1-a"}})
	if err != nil {
		return err
	}
	if j, err = c.WaitJob(ctx, j.ID); err == nil && j.Status != api.Complete {
		err = fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	return err
}
