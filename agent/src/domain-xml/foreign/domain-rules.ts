import { attr, child, remove } from '../dom.ts';
import { METADATA_NAMESPACE } from '../metadata.ts';
import { DEVICES_RULE, isShippedFirmware, LOADER } from './device-rules.ts';
import { each, el, type Judge, type Rule, text } from './rule.ts';

export const LIBOSINFO = 'http://libosinfo.org/xmlns/libvirt/domain/1.0';
const SWITCH = el('state');

/** The variables are a file that the restore made, and are filled from what the distribution ships. */
const judgeNvram: Judge = (nvram, gate) => {
  const leftOut: string[] = [];
  if (gate.strict && !isShippedFirmware(attr(nvram, 'template') ?? '/usr/share/')) {
    nvram.removeAttribute('template');
    leftOut.push('@template');
  }
  const source = child(nvram, 'source');
  const path = source ? (attr(source, 'file') ?? '/') : nvram.textContent?.trim();
  if (!path || gate.fileAt(path, 'nvram')) return leftOut;
  // that there are variables stays
  nvram.textContent = '';
  nvram.removeAttribute('type');
  return [...leftOut, ''];
};

/**
 * A firmware that is not shipped goes. In place of one for UEFI libvirt is to choose its own: variables without a firmware
 * it refuses. What the guest asks of it beside its file stays.
 */
const judgeOs: Judge = os => {
  const loader = child(os, 'loader');
  const path = loader?.textContent?.trim();
  if (!loader || !path || isShippedFirmware(path)) return true;
  const isUefi = attr(loader, 'type') === 'pflash';
  if (isUefi) {
    os.setAttribute('firmware', 'efi');
    for (const name of ['template', 'templateFormat']) child(os, 'nvram')?.removeAttribute(name);
    for (const name of ['readonly', 'type']) loader.removeAttribute(name);
    loader.textContent = '';
  }
  if (!isUefi || loader.attributes.length === 0) remove(loader);
  return ['/loader'];
};

const OS: Rule = el(
  'firmware=efi|bios',
  {
    type: text('arch machine', 'hvm'),
    firmware: el('', { 'feature*': el('enabled name') }),
    loader: LOADER,
    'nvram!': {
      ...text('template/ type=file format templateFormat'),
      children: new Map([['source', { ...el('file/ startupPolicy'), once: true }]]),
      always: judgeNvram,
    },
    'boot*': el('dev'),
    bootmenu: el('enable timeout'),
    bios: el('useserial rebootTimeout'),
    smbios: el('mode=emulate|sysinfo'),
  },
  judgeOs,
);

const ENTRIES = el('', { 'entry*': text('name') });
const SYSINFO = el('type=smbios', {
  bios: ENTRIES,
  system: ENTRIES,
  'baseBoard*': ENTRIES,
  chassis: ENTRIES,
  oemStrings: el('', { 'entry*': text() }),
});

const HYPERV = el('mode', {
  ...each(
    'relaxed vapic vpindex runtime synic reset frequencies reenlightenment ipi evmcs avic emsr_bitmap xmm_input',
    SWITCH,
  ),
  spinlocks: el('state retries'),
  stimer: el('state', { direct: SWITCH }),
  tlbflush: el('state', { direct: SWITCH, extended: SWITCH }),
  vendor_id: el('state value'),
});

const FEATURES: Rule = el('', {
  ...each('acpi pae viridian privnet async-teardown', el('enabled')),
  ...each('hap pvspinlock pmu vmport smmu vmcoreinfo htm nested-hv ccf-assist ps2', SWITCH),
  apic: el('eoi'),
  hyperv: HYPERV,
  kvm: el('', {
    ...each('hidden hint-dedicated poll-control pv-ipi', SWITCH),
    'dirty-ring': el('state size'),
  }),
  ioapic: el('driver'),
  gic: el('version'),
  smm: el('state', { tseg: text('unit') }),
  hpt: el('resizing', { maxpagesize: text('unit') }),
  msrs: el('unknown'),
  ...each('cfpc sbbc ibs ras', el('value state')),
  tcg: el('', { 'tb-cache': text('unit') }),
});

const CPU_CACHE = el('level mode');
export const CPU_RULE: Rule = el('mode match check migratable deprecated_features', {
  arch: text(),
  model: text('fallback vendor_id'),
  vendor: text(),
  microcode: el('version'),
  signature: el('family model stepping'),
  counter: el('name frequency scaling'),
  topology: el('sockets dies clusters cores threads'),
  cache: CPU_CACHE,
  maxphysaddr: el('mode bits limit'),
  'feature*': el('name policy'),
  'pages*': el('unit size'),
  numa: el('', {
    'cell*': el('id cpus memory unit memAccess discard', {
      distances: el('', { 'sibling*': el('id value') }),
      'cache*': el('level associativity policy', { size: el('value unit'), line: el('value unit') }),
    }),
    interconnects: el('', {
      'latency*': el('initiator target cache type value'),
      'bandwidth*': el('initiator target cache type value unit'),
    }),
  }),
});

const CLOCK: Rule = el('offset adjustment basis timezone start', {
  'timer*': el('name track tickpolicy frequency mode present', {
    catchup: el('threshold slew limit'),
  }),
});

/** Resources that are asked for, without the node's devices, control groups and real-time scheduling. */
const RESOURCES = {
  'memory!': text('unit dumpCore'),
  maxMemory: text('slots unit'),
  currentMemory: text('unit'),
  memoryBacking: el('', {
    hugepages: el('', { 'page*': el('size unit nodeset') }),
    nosharepages: el(),
    locked: el(),
    source: el('type=anonymous|memfd'),
    access: el('mode'),
    allocation: el('mode threads'),
    discard: el(),
  }),
  memtune: el('', each('hard_limit soft_limit swap_hard_limit min_guarantee', text('unit'))),
  numatune: el('', {
    memory: el('mode nodeset placement'),
    'memnode*': el('cellid mode nodeset'),
  }),
  blkiotune: el('', { weight: text() }),
  vcpu: text('placement cpuset current'),
  vcpus: el('', { 'vcpu*': el('id enabled hotpluggable order') }),
  iothreads: text(),
  iothreadids: el('', {
    'iothread*': el('id thread_pool_min thread_pool_max', { poll: el('max grow shrink') }),
  }),
  defaultiothread: el('thread_pool_min thread_pool_max'),
  cputune: el('', {
    ...each(
      'shares period quota global_period global_quota emulator_period emulator_quota iothread_period iothread_quota',
      text(),
    ),
    emulatorpin: el('cpuset'),
    'vcpupin*': el('vcpu cpuset'),
    'iothreadpin*': el('iothread cpuset'),
  }),
};

const LIFECYCLE = text('', 'destroy', 'restart', 'preserve', 'rename-restart');

const LAUNCH_SECURITY: Rule = el(
  'type kernelHashes',
  each('cbitpos reducedPhysBits policy dhCert session', text()),
);

export const DOMAIN_RULE: Rule = el('type=qemu|kvm id', {
  'name!': text(),
  'uuid!': text(),
  genid: text(),
  title: text(),
  description: text(),
  'metadata!': { ...el(), namespaces: [METADATA_NAMESPACE, LIBOSINFO] },
  ...RESOURCES,
  'os!': OS,
  sysinfo: SYSINFO,
  features: FEATURES,
  cpu: CPU_RULE,
  clock: CLOCK,
  ...each('on_poweroff on_reboot on_crash', LIFECYCLE),
  on_lockfailure: text('', 'poweroff', 'restart', 'pause', 'ignore'),
  pm: el('', each('suspend-to-mem suspend-to-disk', el('enabled'))),
  perf: el('', { 'event*': el('name enabled') }),
  keywrap: el('', { 'cipher*': el('name state') }),
  launchSecurity: LAUNCH_SECURITY,
  'devices!': DEVICES_RULE,
});
