/**
 * Import directions. Agent: main → grpc → reconcilers → operations → workflows → {inventory, snapshots, images, iso, guest, disks, pools,
 * zfs, appliance, archive, ovf, proxmox} → {domain-xml, libvirt, node-libvirt, shared}. Controller: main → http → services → {agents, store, auth, pki} → shared.
 * Agent and controller meet only in shared and protos.
 */
const forbid = (name, from, to, comment) => ({
  name,
  severity: 'error',
  comment,
  from: { path: from, pathNot: '\\.test\\.ts$' },
  to: { path: to },
});

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: { pathNot: 'shared/src/gen' },
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    { name: 'not-unresolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-test-in-product',
      severity: 'error',
      from: { path: '^(agent|controller|shared)/', pathNot: '(\\.test\\.ts$|/test/)' },
      to: { path: '((^|/)test/|\\.test\\.ts$)' },
    },

    forbid('shared-is-the-bottom', '^shared/', '^(agent|controller)/', 'shared knows neither daemon'),
    forbid('agent-not-controller', '^agent/', '^controller/', 'they meet in shared and protos only'),
    forbid('controller-not-agent', '^controller/', '^agent/', 'they meet in shared and protos only'),
    forbid(
      'binding-stands-alone',
      '^agent/node-libvirt/src',
      '^(shared|controller|agent/src)/',
      'the libvirt binding is a package of its own',
    ),

    {
      name: 'through-the-door',
      severity: 'error',
      comment: 'the public side of these folders is their index.ts',
      from: { path: '^agent/src/([^/]+)', pathNot: '\\.test\\.ts$' },
      to: {
        path: '^agent/src/(appliance|archive|disks|domain-xml|guest|images|iso|ovf|pools|proxmox|snapshots|zfs)/',
        pathNot: '^agent/src/($1/|[^/]+/index\\.ts$)',
      },
    },
    forbid(
      'archive-knows-bytes-only',
      '^agent/src/archive/',
      '^agent/(src/(?!archive/)|node-libvirt)',
      'the archive knows neither libvirt nor pools',
    ),
    forbid(
      'appliance-below',
      '^agent/src/appliance/',
      '^agent/(src/(?!(appliance|archive|disks)/)|node-libvirt)',
      'bytes and names; what a descriptor says is for others',
    ),
    forbid(
      'domain-xml-is-pure',
      '^agent/src/domain-xml/',
      '^agent/(src/(?!domain-xml/)|node-libvirt)',
      'text in, data out',
    ),
    forbid(
      'ovf-is-pure',
      '^agent/src/ovf/',
      '^agent/(src/(?!(ovf|domain-xml)/)|node-libvirt)',
      'text in, data out; who reads files is above',
    ),
    forbid(
      'proxmox-is-pure',
      '^agent/src/proxmox/',
      '^agent/(src/(?!(proxmox|ovf|domain-xml)/)|node-libvirt)',
      'text in, data out; who reads archives is above',
    ),
    forbid(
      'pools-not-archive',
      '^agent/src/pools/',
      '^agent/src/(archive|workflows|operations|grpc|snapshots|inventory)/',
      'a reader is injected instead',
    ),
    forbid(
      'disks-below',
      '^agent/src/disks/',
      '^agent/src/(workflows|operations|grpc|snapshots|inventory|pools|archive)/',
      'disks are images and paths',
    ),
    forbid(
      'guest-below',
      '^agent/src/guest/',
      '^agent/src/(workflows|operations|grpc|pools|archive)/',
      'the guest agent knows no workflow',
    ),
    forbid(
      'images-below',
      '^agent/src/images/',
      '^agent/src/(workflows|operations|grpc|snapshots|archive)/',
      'whoever removes an image asks here, and is not known here',
    ),
    forbid(
      'snapshots-below',
      '^agent/src/snapshots/',
      '^agent/src/(workflows|operations|grpc|archive)/',
      'planners are pure, the executor thin',
    ),
    forbid(
      'libvirt-below',
      '^agent/src/libvirt/',
      '^agent/src/(?!libvirt/)',
      'the link and the errors know no domain of ours',
    ),
    forbid('zfs-alone', '^agent/src/zfs/', '^agent/(src/(?!zfs/)|node-libvirt)', 'zfs knows datasets only'),
    forbid(
      'inventory-below',
      '^agent/src/inventory/',
      '^agent/src/(workflows|operations|grpc|archive)/',
      'the cache tells what is there and does nothing',
    ),
    forbid(
      'workflows-below-operations',
      '^agent/src/workflows/',
      '^agent/src/(operations|grpc|main|config)',
      'a workflow sees its context only',
    ),
    forbid(
      'reconcilers-above-operations',
      '^agent/src/(?!(grpc|reconcilers)/)[^/]+/',
      '^agent/src/reconcilers/',
      'what they do are operations like any other',
    ),
    forbid('iso-below', '^agent/src/iso/', '^agent/src/(?!(iso|pools)/)', 'images are files of a pool'),
    forbid('enroll-alone', '^agent/src/enroll/', '^agent/src/(?!enroll/)', "the node's identity knows no VM"),
    forbid(
      'operations-below-grpc',
      '^agent/src/operations/',
      '^agent/src/grpc/',
      'the runner does not know who called',
    ),

    forbid(
      'store-below',
      '^controller/src/store/',
      '^controller/src/(http|services|agents)/',
      'the store decides nothing',
    ),
    forbid(
      'services-below-http',
      '^controller/src/services/',
      '^controller/src/http/',
      'services do not know REST',
    ),
    forbid(
      'cluster-on-top',
      '^controller/src/(http|services|agents|store|auth|pki|keys)/',
      '^controller/src/cluster/',
      'whether a controller acts is decided above',
    ),
    forbid('agents-below', '^controller/src/agents/', '^controller/src/(http)/', 'agents do not know REST'),
    forbid(
      'cli-speaks-rest',
      '^controller/cli/',
      '^(controller/src|agent|shared/src/gen)/',
      'the command line speaks REST only',
    ),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '(^node_modules/|^controller/web/|/dist/|^\\.cache|^\\.lab)' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
      extensions: ['.ts', '.js', '.json'],
    },
  },
};
