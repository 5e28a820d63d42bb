// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/url"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Paths of /v1. {…} is a parameter; Path fills it in. Every GET but those of
// health and version reads the daemon's view, and takes ?min_revision=N: it
// waits, for a bounded time, until the view is at least as new as N; and
// ?consistency=linearizable: until it shows all that was acknowledged before,
// by whatever instance, or unavailable where that cannot be known. Lists come in pages:
// ?limit=N&continue=TOKEN, in the order of ?sort=FIELD,-FIELD…, with just the
// ?fields=NAME,NAME… of each item. Unknown query parameters are refused.
const (
	PathNodes      = "/v1/nodes"                    // GET ?name=…&status=…&state=…&group=…, each any number of times, &selector=…: List[Node]
	PathNode       = "/v1/nodes/{name}"             // GET, PATCH NodePatch: Node
	PathHistory    = "/v1/nodes/{name}/history"     // GET: List[HistoryEntry], newest first
	PathExplain    = "/v1/nodes/{name}/explanation" // GET: NodeExplanation
	PathForget     = "/v1/forget"                   // POST Forget: Changed
	PathGroups     = "/v1/groups"                   // GET: List[Group], in the order of the configuration
	PathJobs       = "/v1/jobs"                     // GET ?status=…&node=…: List[Job], newest first; POST JobRequest: 202 Job
	PathJob        = "/v1/jobs/{id}"                // GET ?wait=30s&after=REVISION&vars=false: Job; id, "active" or "last"
	PathCancel     = "/v1/jobs/{id}/cancel"         // POST: Job
	PathRetry      = "/v1/jobs/{id}/retry"          // POST Retry: 202 Job
	PathExplainJob = "/v1/jobs/{id}/explanation"    // GET: JobExplanation; id, "active" or "last"
	PathLog        = "/v1/jobs/{id}/log"            // GET ?offset=N&follow=true: the bytes of the output
	PathEvents     = "/v1/jobs/{id}/events"         // GET ?offset=N&follow=true: an Event a line
	PathGlobalVars = "/v1/vars/global"              // GET: Vars; PUT Vars, PATCH Vars (null unsets): Changed
	PathGroupVars  = "/v1/vars/groups/{name}"       // likewise
	PathNodeVars   = "/v1/vars/nodes/{name}"        // likewise; GET ?merged=true: MergedVars
	PathConfig     = "/v1/config"                   // GET: Config; PATCH an object (null takes a key out of the overlay): Config
	PathInstances  = "/v1/instances"                // GET: List[Instance], the oldest first
	PathWatch      = "/v1/watch"                    // GET ?kinds=…&name=…&group=…&selector=…&since=REVISION: server-sent events, a Change each
	PathHealth     = "/v1/health"                   // GET: Health, 200 where it is ok, else 503
	PathVersion    = "/v1/version"                  // GET: Version
	PathMetrics    = "/metrics"                     // GET, Prometheus text format

	// The contract itself.
	PathOpenAPI     = "/v1/openapi.yaml" // GET
	PathOpenAPIJSON = "/v1/openapi.json" // GET
	PathDocs        = "/v1/docs"         // GET: a page for people
)

// Headers of answers and requests. Every GET but those of health, a log and a
// watch answers with an ETag, and takes If-None-Match: 304 where nothing is new. PATCH and PUT of them, and a cancel,
// take If-Match: 412 where the record is not the one that was read.
const (
	// HeaderRevision of an answer is the revision of the store that it shows,
	// or that a change made.
	HeaderRevision = "X-Clusterm-Revision"
	// HeaderStale of an answer is "true" where the store has said nothing for 3
	// seconds: what the answer shows may be old.
	HeaderStale = "X-Clusterm-Stale"
	// HeaderJob of a log is the id of the job that "active" or "last" meant.
	HeaderJob = "X-Clusterm-Job"
	// HeaderNextOffset is where a log goes on: a trailer of a GET, the log's
	// size in the header of a HEAD.
	HeaderNextOffset = "X-Clusterm-Next-Offset"
	// HeaderIdempotencyKey of a POST is a key of the client's choice: a POST with the same
	// key and the same body is carried out once, however often it arrives. It is
	// remembered for a day.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderReplayed of an answer is "true" where the request was carried out
	// before: the answer shows what it did then, as that is now.
	HeaderReplayed = "Idempotency-Replayed"
	// HeaderActor of a request names the person that root acts for. It counts
	// only where root opened the Unix socket.
	HeaderActor = "X-Clusterm-Actor"
	// HeaderProblem of a failure of the first generation's contract, whose
	// status says nothing, is the kind of error (inventory.Kind).
	HeaderProblem = "X-Clusterm-Problem"
)

// MaxIdempotencyKey is the length of HeaderOnce in bytes.
const MaxIdempotencyKey = 255

// MaxActor is the length of HeaderActor in bytes.
const MaxActor = 64

// Content types.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
	TypeLines   = "application/x-ndjson"
	TypeText    = "text/plain; charset=utf-8"
	TypeYAML    = "application/yaml"
	TypeHTML    = "text/html; charset=utf-8"
)

// Path fills the parameters of a path in, in order, escaped.
func Path(pattern string, params ...string) (string, error) {
	var b strings.Builder
	for rest := pattern; ; {
		before, after, ok := strings.Cut(rest, "{")
		b.WriteString(before)

		if !ok {
			return b.String(), nil
		}

		name, tail, _ := strings.Cut(after, "}")
		if len(params) == 0 || params[0] == "" {
			return "", inventory.Errorf(inventory.KindInvalid, "the %s is empty", name).Do("name one")
		}

		b.WriteString(url.PathEscape(params[0]))
		params, rest = params[1:], tail
	}
}
