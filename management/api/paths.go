// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// The paths of /v1, with parameters in braces for Path. Every GET except health
// and version reads the daemon's view. It accepts ?min_revision=N, to wait for a
// bounded time until the view reaches revision N, and ?consistency=linearizable,
// to include every change that any instance acknowledged before, or to fail with
// KindUnavailable. Lists are paged with ?limit=N&continue=TOKEN, sorted with
// ?sort=FIELD,-FIELD… and reduced with ?fields=NAME,NAME…. Unknown query
// parameters are refused.
const (
	PathNodes      = "/v1/nodes"                    // GET ?name=…&status=…&group=…&selector=…: List[Node]
	PathNode       = "/v1/nodes/{name}"             // GET, PATCH NodePatch: Node
	PathHistory    = "/v1/nodes/{name}/history"     // GET: List[HistoryEntry], newest first
	PathExplain    = "/v1/nodes/{name}/explanation" // GET: NodeExplanation
	PathHostKeys   = "/v1/nodes/{name}/host-keys"   // PUT HostKeyTrust: Node
	PathBMCLogin   = "/v1/nodes/{name}/bmc-login"   // PUT BMCLogin: Power
	PathInventory  = "/v1/inventory"                // GET, filters of PathNodes: List[InventoryHost]
	PathDifference = "/v1/nodes/{name}/diff"        // GET: Difference
	PathFacts      = "/v1/nodes/{name}/facts"       // GET ?inspection=N: NodeFacts
	PathNodeBoots  = "/v1/nodes/{name}/boots"       // GET: NodeBoots
	PathForget     = "/v1/forget"                   // POST Forget: Changed
	PathPing       = "/v1/ping"                     // POST Ping: List[PingResult], in the order of the names
	PathGroups     = "/v1/groups"                   // GET: List[Group], in configuration order
	PathJobs       = "/v1/jobs"                     // GET ?status=…&node=…: List[Job]; POST JobRequest: 202 Job
	PathJob        = "/v1/jobs/{id}"                // GET ?wait=30s&after=REVISION&vars=false: Job
	PathCancel     = "/v1/jobs/{id}/cancel"         // POST: Job
	PathRetry      = "/v1/jobs/{id}/retry"          // POST Retry: 202 Job
	PathPlans      = "/v1/plans"                    // GET: List[Plan]; POST JobRequest: 201 Plan
	PathPlan       = "/v1/plans/{id}"               // GET ?vars=false: Plan; DELETE: Changed
	PathApplyPlan  = "/v1/plans/{id}/apply"         // POST: 202 Job
	PathExplainJob = "/v1/jobs/{id}/explanation"    // GET: JobExplanation; id, "active" or "last"
	PathLog        = "/v1/jobs/{id}/log"            // GET ?offset=N&follow=true: the output
	PathEvents     = "/v1/jobs/{id}/events"         // GET ?offset=N&follow=true: one Event per line
	PathGlobalVars = "/v1/vars/global"              // GET: Vars; PUT Vars, PATCH Vars (null unsets): Changed
	PathGroupVars  = "/v1/vars/groups/{name}"       // the same
	PathNodeVars   = "/v1/vars/nodes/{name}"        // the same; GET ?merged=true: MergedVars
	PathConfig     = "/v1/config"                   // GET: Config; PATCH an object (null removes a key): Config
	PathImport     = "/v1/nodes/import"             // POST Import: Imported
	PathConfigure  = "/v1/nodes/configure"          // POST Configure: Imported
	PathMerge      = "/v1/nodes/merge"              // POST Merge: Changed
	PathSplit      = "/v1/nodes/split"              // POST Split: Changed
	PathMachines   = "/v1/machines"                 // GET: List of machine.Machine
	PathImports    = "/v1/imports"                  // GET: ImportRun list
	PathImportRun  = "/v1/imports/{id}"             // GET: ImportRun
	PathClasses    = "/v1/classes"                  // GET: List of Class; POST ClassRequest: Class
	PathClass      = "/v1/classes/{name}"           // DELETE: Changed
	PathExport     = "/v1/machines/export"          // GET: a list of machines, as an Import takes it
	PathFleet      = "/v1/fleet"                    // GET: a fleet file
	PathFleetDiff  = "/v1/fleet/diff"               // POST FleetRequest: FleetDiff
	PathFleetApply = "/v1/fleet/apply"              // POST FleetApply: Changed
	PathReload     = "/v1/config/reload"            // POST: Config, as the file on disk makes it
	PathPower      = "/v1/power"                    // GET: List[Power], by node
	PathAlerts     = "/v1/alerts"                   // GET: List[NodeAlert]; POST AlertRequest: List[NodeAlert]
	PathEndAlert   = PathAlerts + "/end"            // POST AlertEnd: List[NodeAlert]
	PathScan       = "/v1/scan"                     // GET: Scan; POST: Scan
	PathExpected   = "/v1/expected"                 // GET: List[ExpectedMachine], by node or BMC
	PathInstances  = "/v1/instances"                // GET: List[Instance], oldest first
	PathMembers    = "/v1/members"                  // GET: List[Member], by id
	PathMember     = PathMembers + "/{id}"          // DELETE: Changed; an id or the name of its node
	PathInvite     = PathMembers + "/invite"        // POST InviteRequest: Invite
	PathJoin       = PathMembers + "/join"          // POST JoinRequest: JoinAnswer
	PathTokens     = "/v1/tokens"                   // GET: List[Token]; POST TokenRequest: NewToken
	PathSecrets    = "/v1/secrets"                  // GET: Secrets
	PathRotate     = PathSecrets + "/rotate"        // POST SecretsRotation: Secrets
	PathToken      = PathTokens + "/{id}"           // DELETE: Changed; an id or a name

	PathNotifications    = "/v1/notifications"                      // GET: Notifications
	PathDeliveries       = PathNotifications + "/{name}/deliveries" // GET ?status=dead: Deliveries
	PathTestNotification = PathNotifications + "/{name}/test"       // POST: Notification, once it accepted a test
	PathRetryDeliveries  = PathNotifications + "/{name}/retry"      // POST: Notification; dead ones are pending again

	PathAudit        = "/v1/audit"                // GET ?since=…&who=…&tail=N: AuditList; ?follow=true: AuditEvents
	PathAuditLines   = "/v1/audit/export"         // GET: one AuditEntry per line
	PathAuditCheck   = "/v1/audit/verification"   // GET: AuditReport
	PathBackup       = "/v1/backup"               // GET: a backup, see package backup
	PathWhoAmI       = "/v1/auth/whoami"          // GET: Identity
	PathCanI         = "/v1/auth/can-i"           // GET ?verb=…&node=…: Permission
	PathWatch        = "/v1/watch"                // GET ?kinds=…&name=…&selector=…&since=REVISION: Change events
	PathHealth       = "/v1/health"               // GET: Health, 200 if ok, else 503
	PathVersion      = "/v1/version"              // GET: Version
	PathMetrics      = "/metrics"                 // GET, Prometheus text format
	PathCertificates = "/v1/certificates"         // GET: List[Certificate]
	PathCertificate  = PathCertificates + "/{id}" // DELETE: Changed; a name, a serial number, or serial:HEX

	PathScanHostKeys = PathHostKeys + "/scan" // POST: HostKeys, as the node shows them now

	PathGossipKey       = "/v1/gossip-key"          // GET: GossipKey
	PathRotateGossipKey = PathGossipKey + "/rotate" // POST GossipKeyRotation: 202 GossipKey

	PathSSHKey         = "/v1/ssh-key"            // GET: SSHKey
	PathRotateSSHKey   = PathSSHKey + "/rotate"   // POST SSHKeyRotation: 202 SSHKey
	PathCancelSSHKey   = PathSSHKey + "/cancel"   // POST: 202 SSHKey
	PathPolicies       = "/v1/policies"           // GET: Policies
	PathPolicy         = PathPolicies + "/{name}" // GET: Policy, with its newest decisions
	PathPausePolicy    = PathPolicy + "/pause"    // POST PolicyControl: Policies; name "all": every policy
	PathResumePolicy   = PathPolicy + "/resume"   // the same
	PathEnablePolicy   = PathPolicy + "/enable"   // POST PolicyEnable: Policies
	PathDisablePolicy  = PathPolicy + "/disable"  // POST PolicyControl: Policies
	PathTestPolicy     = PathPolicy + "/test"     // POST PolicyTest: PolicyTested
	PathReleaseBrake   = "/v1/brake/release"      // POST PolicyControl: Policies
	PathRollouts       = "/v1/rollouts"           // GET: List[Rollout]; POST RolloutRequest: 201 Rollout
	PathPreviewRollout = "/v1/rollout-preview"    // POST RolloutRequest: Rollout
	PathRollout        = PathRollouts + "/{id}"   // GET ?wait=…&after=REVISION: Rollout
	PathPauseRollout   = PathRollout + "/pause"   // POST RolloutControl: Rollout
	PathResumeRollout  = PathRollout + "/resume"  // POST RolloutResume: Rollout
	PathAbortRollout   = PathRollout + "/abort"   // POST RolloutAbort: Rollout
	PathRetryRollout   = PathRollout + "/retry"   // POST RolloutRetry: Rollout
	PathUndoRollout    = PathRollout + "/undo"    // POST RolloutControl: 201 Rollout, the new one
	PathPromoteRollout = PathRollout + "/promote" // POST RolloutControl: Rollout
	PathApproveRollout = PathRollout + "/approve" // POST RolloutControl: Rollout
	PathWindows        = "/v1/windows"            // GET: Windows
	PathFreeze         = "/v1/freeze"             // GET: Freeze; POST FreezeRequest: Freeze
	PathLiftFreeze     = PathFreeze + "/lift"     // POST FreezeLift: Freeze
	PathRepository     = "/v1/repository"         // GET: Repository
	PathSyncRepository = PathRepository + "/sync" // POST: Repository
	PathRepositoryLog  = PathRepository + "/log"  // GET ?limit=…&all=true: RepositoryLog
	PathRepositoryDiff = PathRepository + "/diff" // GET ?node=… or ?from=…&to=…: RepositoryDiff

	// Each of the three paths of variables has a history and an undo.
	SuffixHistory = "/history" // GET: List[VarsChange], newest first
	SuffixUndo    = "/undo"    // POST VarsUndo: Changed

	// The contract.
	PathOpenAPI     = "/v1/openapi.yaml" // GET
	PathOpenAPIJSON = "/v1/openapi.json" // GET
	PathDocs        = "/v1/docs"         // GET: the reference in HTML

	PathImages     = "/v1/images"                     // GET: List of Image; POST ImageRequest: Image
	PathImage      = "/v1/images/{name}"              // GET: Image; DELETE: Changed
	PathImageFile  = "/v1/images/{name}/files/{role}" // GET, PUT ?offset=N: the content; PUT answers with Image
	PathImageCheck = "/v1/images/{name}/verify"       // POST: ImageCheck

	PathAddresses = "/v1/addresses"           // GET: List of Address; POST AddressRequest: Address
	PathAddress   = PathAddresses + "/{addr}" // DELETE: Changed
	PathBoot      = "/v1/boot"                // GET: BootStatus, of the instance that answers
)

// Headers of answers and requests. Every GET except health, logs and watches
// returns an ETag and accepts If-None-Match (304 for an unchanged answer). PATCH,
// PUT and cancel accept If-Match (412 if the record has changed since the read).
const (
	// HeaderRevision of an answer is the store's revision that the answer shows or
	// the change produced.
	HeaderRevision = "X-Clusterm-Revision"
	// HeaderStale of an answer is "true" if the store has not responded for 3
	// seconds, so the answer may be out of date.
	HeaderStale = "X-Clusterm-Stale"
	// HeaderJob of a log is the id of the job behind "active" or "last".
	HeaderJob = "X-Clusterm-Job"
	// HeaderNextOffset is the offset for the next read of a log, in bytes: a
	// trailer of a GET, a header of a HEAD.
	HeaderNextOffset = "X-Clusterm-Next-Offset"
	// HeaderIdempotencyKey of a POST is a unique key of the client's choice. A
	// retry with the same key and body returns the first result. The daemon stores
	// keys for a day.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderReplayed of an answer is "true" for a retry: the answer shows the
	// current state of the first request's result.
	HeaderReplayed = "Idempotency-Replayed"
	// HeaderActor of a request is the user on behalf of root. The daemon accepts
	// it only from root on the Unix socket.
	HeaderActor = "X-Clusterm-Actor"
	// HeaderRequestID is the id of a request, in its answer, in the logs and in the
	// audit trail. A client may choose it, as in IsRequestID; the daemon replaces
	// any other text.
	HeaderRequestID = "X-Request-Id"
	// HeaderProblem of a failure of the first generation is the kind of error
	// (inventory.Kind), because its status is always 500.
	HeaderProblem = "X-Clusterm-Problem"
)

// Keyless are the changes under /v1 that accept no Idempotency-Key, because they are not one transaction, and those of
// the first generation that clients send. True: a repetition does no harm.
var Keyless = map[string]bool{
	PathPing: true, PathFleetDiff: true, PathScanHostKeys: true, PathTestPolicy: true, PathPreviewRollout: true,
	PathObservations: true, PathSyncRepository: true, LegacyMonitorEvent: true,

	PathImport: false, PathConfigure: false, PathFleetApply: false, PathAlerts: false, PathEndAlert: false,
	PathRotate: false, PathTestNotification: false, PathRetryDeliveries: false, PathScan: false, PathReload: false,
	PathJoin: false, LegacyConfig: false, PathImageFile: false, PathImageCheck: false,
}

// MaxIdempotencyKey is the maximum length of HeaderIdempotencyKey in bytes.
const MaxIdempotencyKey = 255

// MaxRequestID is the maximum length of HeaderRequestID in bytes.
const MaxRequestID = 64

// IsRequestID reports whether a client may choose the id for a request: letters,
// digits and -._ after a letter or digit. So it is safe in a log, on a terminal and
// on a command line.
func IsRequestID(id string) bool {
	if id == "" || len(id) > MaxRequestID {
		return false
	}

	for i, c := range []byte(id) {
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !plain && (i == 0 || strings.IndexByte("-._", c) < 0) {
			return false
		}
	}

	return true
}

// NewRequestID returns a random id for a request.
func NewRequestID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	return hex.EncodeToString(random[:])
}

// MaxActor is the maximum length of HeaderActor in bytes.
const MaxActor = 64

// Content types.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
	TypeLines   = "application/x-ndjson"
	TypeText    = "text/plain; charset=utf-8"
	TypeYAML    = "application/yaml"
	TypeHTML    = "text/html; charset=utf-8"
	TypeBinary  = "application/octet-stream"
	TypeBackup  = TypeBinary
)

// Path returns the path with its parameters filled in, in order and escaped.
func Path(pattern string, params ...string) (string, error) {
	var b strings.Builder
	// Each round consumes one parameter.
	for rest := pattern; ; {
		before, after, ok := strings.Cut(rest, "{")
		b.WriteString(before)

		if !ok {
			return b.String(), nil
		}

		name, tail, _ := strings.Cut(after, "}")
		if len(params) == 0 || params[0] == "" {
			return "", inventory.Errorf(inventory.KindInvalid, "the %s is empty", name).Do("pass the %s", name)
		}

		b.WriteString(url.PathEscape(params[0]))
		params, rest = params[1:], tail
	}
}
