// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/inspect"
	"github.com/contiv/cluster/management/step/power"
)

// runnerCommand makes the test binary the runner process of the daemon.
func runnerCommand() {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		os.Exit(ansible.Main(os.Args[2]))
	}
}

// testDaemon is a real daemon in this process, with testdata/ansible-playbook in
// place of Ansible. It has no nodes at first, and its first job is job 1.
type testDaemon struct {
	dir    string // short: the path of a socket is limited to 107 bytes
	daemon *daemon.Daemon
}

func startDaemon(ctx context.Context) (*testDaemon, error) {
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		return nil, err
	}
	d := &testDaemon{dir: dir}

	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	return d, nil
}

func (d *testDaemon) socket() string { return filepath.Join(d.dir, "daemon") }

// gate is the file that holds the playbooks with a host slow-*.
func (d *testDaemon) gate() string { return filepath.Join(d.dir, "gate") }

func (d *testDaemon) start(ctx context.Context) error {
	playbook, err := filepath.Abs("testdata/ansible-playbook")
	if err != nil {
		return err
	}

	// In the folder of the test only its account can write, as the manager wants it.
	playbooks := filepath.Join(d.dir, "playbooks")
	if err := os.CopyFS(playbooks, os.DirFS("../../management/daemon/testdata/playbooks")); err != nil {
		return err
	}

	// The program looks for the gate beside its own path.
	if err := os.Symlink(playbook, filepath.Join(d.dir, "ansible-playbook")); err != nil {
		return err
	}

	config := filepath.Join(d.dir, "clusterm.yaml")
	text := fmt.Sprintf(`data_dir: %[1]s/d
socket: %[1]s/daemon
plain_http: 127.0.0.1:0
plain_http_role: operator
gossip: off
node: {label: manager, serial: "1"}
playbooks: %[2]s
ansible_playbook: %[1]s/ansible-playbook
jobs: {timeout: 1h}
`, d.dir, playbooks)

	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}

	logger := logrus.New()
	logger.SetOutput(io.Discard)

	d.daemon, err = daemon.New(daemon.Options{
		ConfigPath: config,
		Command:    []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0]},
		InProcess:  true,
		StaleAfter: patience,
		Logger:     logger,
		Version:    api.Version{Version: "test"},
		Executors: func(s record.Store) step.Executors {
			return step.Executors{job.StepInspect: inspect.New(inspect.Options{
				Hosts:    d,
				BMCs:     power.Registered{Pool: bmc.New()},
				Keep:     inspect.KeepIn(s, nil),
				Settings: func() step.Settings { return step.Settings{} },
			})}
		},
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	return d.daemon.Start(ctx)
}

// RunProgram implements inspect.Hosts: every host has the same two disks, but a host mute-* fails, and a host held-*
// waits as long as the gate exists. Each is written into the ledger, if there is one.
func (d *testDaemon) RunProgram(
	ctx context.Context, h configuration.Host, _ configuration.Program,
) ([]byte, configuration.Reach, error) {
	if f, err := os.OpenFile(d.ledger(), os.O_APPEND|os.O_WRONLY, 0); err == nil {
		_, err = fmt.Fprintf(f, "inspect %s\n", h.Name)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, configuration.Reach{}, err
		}
	}

	label, _, _ := strings.Cut(h.Name, "-")

	switch {
	case label == "mute":
		return nil, configuration.Reach{Login: "mute"}, errors.New("it says nothing")
	case label == "held":
		if err := poll(func() bool { return ctx.Err() != nil || !isFile(d.gate()) }); err != nil {
			return nil, configuration.Reach{}, err
		}
	}

	output, err := json.Marshal(facts.Facts{
		Schema: facts.Schema, System: facts.System{Vendor: "ACME", Product: "S1"},
		Disks: []facts.Disk{
			{Name: "sda", SizeBytes: 480e9, Model: "SAMSUNG"}, {Name: "sdb", SizeBytes: 4e12, Serial: "Z1"},
		},
	})

	return output, configuration.Reach{}, err
}

// ledger is the file with the hosts that were reached, by a playbook, an inspection or ssh, for scripts that make it.
func (d *testDaemon) ledger() string { return filepath.Join(d.dir, "ledger") }

// stop opens the gate, so that no job delays the end of the daemon.
func (d *testDaemon) stop() error {
	_ = os.Remove(d.gate())
	return errors.Join(d.daemon.Stop(context.Background()), os.RemoveAll(d.dir))
}
