// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// prometheusServer is a Prometheus of the distribution that scrapes a daemon.
type prometheusServer struct {
	t       *testing.T
	addr    string
	done    chan struct{}
	logFile string
}

// startPrometheus starts one with the configuration and the rules of docs/, but for
// the daemon's address, and more often.
func startPrometheus(t *testing.T, target string) *prometheusServer {
	t.Helper()
	dir := t.TempDir()

	data, err := os.ReadFile(root + "/docs/prometheus/scrape.yml")
	errtest.None(t, err)

	rules, err := filepath.Abs(root + "/docs/prometheus/alerts.yml")
	errtest.None(t, err)
	config := "global: {evaluation_interval: 1s}\n" + strings.NewReplacer("127.0.0.1:9009", target,
		"scrape_interval: 15s", "scrape_interval: 1s\n    scrape_timeout: 1s", "alerts.yml", rules).
		Replace(string(data))

	file := filepath.Join(dir, "prometheus.yml")
	errtest.None(t, os.WriteFile(file, []byte(config), 0o600))

	p := &prometheusServer{
		t:       t,
		addr:    serftest.Free(t, "127.0.0.1"),
		done:    make(chan struct{}),
		logFile: filepath.Join(dir, "log"),
	}

	log, err := os.Create(p.logFile)
	errtest.None(t, err)
	defer log.Close()
	cmd := exec.Command(
		"prometheus",
		"--config.file="+file,
		"--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+p.addr,
	)

	cmd.Stdout, cmd.Stderr = log, log

	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}

	go func() {
		defer close(p.done)
		cmd.Wait() // how it ends does not matter
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() // fails where it has ended
		<-p.done
	})
	wait(t, "Prometheus listens", func() bool {
		p.checkAlive()

		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})

	return p
}

func (p *prometheusServer) checkAlive() {
	p.t.Helper()

	select {
	case <-p.done:
		text, err := os.ReadFile(p.logFile)
		p.t.Fatalf("Prometheus has ended: %s, %v", text, err)
	default:
	}
}

// ask decodes an answer of its API, and reports whether there was one: it listens
// before it can answer.
func (p *prometheusServer) ask(path string, query url.Values, data any) bool {
	p.t.Helper()
	p.checkAlive()

	resp, err := http.Get("http://" + p.addr + "/api/v1/" + path + "?" + query.Encode())
	errtest.None(p.t, err)
	defer resp.Body.Close()

	if resp.StatusCode == http.StatusServiceUnavailable {
		return false
	}

	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s %v: %v, %s", path, query, err, answer.Error)
	}

	return true
}

// sample is a series at one moment.
type sample struct {
	Metric map[string]string
	Value  [2]any // time, value as text
}

func (s sample) value() float64 {
	text, _ := s.Value[1].(string)

	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// query evaluates an expression now, and leaves out results that are no number.
func (p *prometheusServer) query(expr string) []sample {
	p.t.Helper()
	var data struct{ Result []sample }
	p.ask("query", url.Values{"query": {expr}}, &data)
	return slices.DeleteFunc(data.Result, func(s sample) bool { return math.IsNaN(s.value()) })
}

// TestLiveBoard checks that, after some work, every panel of the Grafana board shows
// a series under its name, and that an alert reports the failure.
func TestLiveBoard(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("waits for the real Prometheus; set CLUSTERM_LAB=1, as make system does")
	}

	t.Parallel()
	s := begin(t, "gossip: {bind: 127.0.0.1:0}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`,
		"listen: 127.0.0.1:0")
	s.state("manager-1", inventory.Discovered)
	s.report("a b")
	p := startPrometheus(t, strings.TrimPrefix(s.url, "http://"))
	wait(t, "a first scrape", func() bool { return len(p.query("clusterm_nodes")) > 0 })

	if j := s.runJob(
		api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: "service-master"},
	); j.Status != api.Complete {
		t.Fatalf("%+v", j)
	}

	if j := s.runJob(
		api.JobRequest{
			Verb:      inventory.VerbMaintenance,
			Nodes:     []string{"a-1"},
			ExtraVars: []byte(`{"fails_on":"a-1"}`),
		},
	); j.Status != api.Errored {
		t.Fatalf("%+v", j)
	}

	// The board shows the rollouts that have not ended: this one waits for an approval.
	_, err := s.Client.StartRollout(s.ctx(), api.RolloutRequest{
		Spec: api.RolloutSpec{
			Action: inventory.VerbCommission, Group: inventory.GroupMaster, RequireApproval: true,
			Gate: &api.RolloutGate{SkipVerify: true},
		},
		Nodes: []string{"b-1"},
	})
	s.must(err)

	// Requests have too many kinds to begin each at 0, so it takes a second of its
	// kind to show as an increase.
	for _, seen := range []string{"== 1", "== 2"} {
		if code, _ := s.get(api.PathNodes + "/nobody"); code != http.StatusNotFound {
			t.Fatalf("a node that is not there: %d", code)
		}

		wait(
			t,
			"the answer is counted",
			func() bool { return len(p.query(`clusterm_http_requests_total{code="404"} `+seen)) > 0 },
		)
	}

	data, err := os.ReadFile(root + "/docs/grafana/clusterm.json")
	errtest.None(t, err)

	var board struct {
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	errtest.None(t, json.Unmarshal(data, &board))

	// What the variable $instance is chosen from, and how Grafana would write all.
	asked := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).
		FindStringSubmatch(board.Templating.List[1].Definition)
	if board.Templating.List[1].Name != "instance" || asked == nil {
		t.Fatalf("%+v", board.Templating.List)
	}

	var instances []string
	p.ask("label/"+asked[2]+"/values", url.Values{"match[]": {asked[1]}}, &instances)

	if len(instances) != 1 || !strings.Contains(s.url, instances[0]) {
		t.Fatalf("instances: %v", instances)
	}

	all := "(" + strings.ReplaceAll(regexp.QuoteMeta(instances[0]), `\`, `\\`) + ")"

	placeholder := regexp.MustCompile(`{{(\w+)}}`)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			// Longer than a busy machine takes from the work to this question.
			expr := strings.NewReplacer("$__rate_interval", "30m", "$instance", all).Replace(target.Expr)
			var series []sample
			wait(t, fmt.Sprintf("%s shows something: %s", panel.Title, expr), func() bool {
				series = p.query(expr)
				return len(series) > 0
			})

			for _, one := range series {
				for _, label := range placeholder.FindAllStringSubmatch(target.LegendFormat, -1) {
					if one.Metric[label[1]] == "" && label[1] != "commit" { // a test has none
						t.Errorf("%s: %v has no %s for its name", panel.Title, one.Metric, label[1])
					}
				}
			}

			if len(series) > 1 && !placeholder.MatchString(target.LegendFormat) {
				t.Errorf("%s: several series under one name", panel.Title)
			}
		}
	}

	// The numbers of what was done. A counter has to be there before it counts, or
	// the first time would not be seen.
	for expr, least := range map[string]float64{
		`sum(clusterm_nodes{status="Allocated"})`:                        1,
		`sum(increase(clusterm_jobs_ended_total{cause="failed"}[30m]))`:  1,
		`sum(increase(clusterm_jobs_ended_total{cause="done"}[30m]))`:    1,
		`sum(increase(clusterm_runner_ends_total{cause="failed"}[30m]))`: 1,
	} {
		wait(t, expr, func() bool {
			got := p.query(expr)
			return len(got) == 1 && got[0].value() >= least
		})
	}

	type alert struct {
		Labels, Annotations map[string]string
		State               string
	}
	var alerts struct{ Alerts []alert }
	wait(t, "the alert for the job that failed", func() bool {
		alerts.Alerts = nil
		p.ask("alerts", nil, &alerts)

		return slices.ContainsFunc(alerts.Alerts, func(a alert) bool {
			return a.Labels["alertname"] == "ClustermJobsFail" && a.State == "firing" &&
				a.Labels["instance"] == instances[0] &&
				a.Annotations["summary"] == "a maintenance job ended: failed"
		})
	})

	for _, a := range alerts.Alerts { // others may be pending for a moment
		if a.State == "firing" && a.Labels["alertname"] != "ClustermJobsFail" {
			t.Errorf("%+v", a)
		}
	}

	var groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.ask("rules", nil, &groups)

	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
}
