// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
)

// The test binary is also the runner's process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		os.Exit(ansible.Main(os.Args[2]))
	}
	var cancel context.CancelFunc
	all, cancel = context.WithTimeout(context.Background(), 5*time.Minute)
	code := m.Run()
	cancel()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the examples' manager:", err)
		code = 1
	}
	os.Exit(code)
}

// all is for everything that the examples do.
var all context.Context

// stop ends the manager of the examples, where it has been started.
var stop = func() error { return nil }

// socket is where the examples' manager listens. It is a whole one, on a real
// etcd, with a playbook runner that reaches every host. It is started for the first
// example that needs it, and knows of six nodes: host1-a is in service as the
// master, host2-b to host6-f are ready to be commissioned.
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
	text := fmt.Sprintf("data_dir: %[1]s/d\nsocket: %[1]s/s\ngossip: off\nnode: {label: manager, serial: \"1\"}\nplaybooks: %[1]s/playbooks\nansible_playbook: %[2]s\n", dir, fake)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	d, err := daemon.New(daemon.Options{
		ConfigPath: config, Command: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0]}, InProcess: true,
		Version: api.Version{Version: "test"}, Logger: log,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(all, time.Minute)
	defer cancel()
	if err := d.Start(ctx); err != nil {
		return err
	}
	stop = func() error {
		err := d.Stop(context.Background())
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
		return err
	}
	c, err := client.New(client.Options{Socket: filepath.Join(dir, "s")})
	if err != nil {
		return err
	}
	var nodes []api.LegacyEventNode
	for i := range 6 {
		nodes = append(nodes, api.LegacyEventNode{Label: fmt.Sprintf("host%d", i+1), Serial: string(rune('a' + i)), Addr: fmt.Sprintf("10.0.0.%d", i+1)})
	}
	if err := c.Report(ctx, true, nodes); err != nil {
		return err
	}
	j, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"host1-a"}})
	if err != nil {
		return err
	}
	if j, err = c.WaitJob(ctx, j.ID); err == nil && j.Status != api.Complete {
		err = fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Reason)
	}
	return err
}
