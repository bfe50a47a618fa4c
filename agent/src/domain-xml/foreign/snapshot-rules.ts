import { attr, child, children, remove } from '../dom.ts';
import { CPU_RULE, DOMAIN_RULE, LIBOSINFO } from './domain-rules.ts';
import { el, type Judge, type Rule, text } from './rule.ts';

/** Who deletes the state removes this file. */
const judgeMemory: Judge = (memory, gate) => {
  if (attr(memory, 'snapshot') !== 'external' || gate.fileAt(attr(memory, 'file') ?? '', 'memory'))
    return true;
  memory.setAttribute('snapshot', 'no');
  memory.removeAttribute('file');
  return ['@file'];
};

/** Who deletes or merges the state removes, or writes to, the file that it made. */
const judgeOverlay: Judge = (disk, gate) => {
  const sources = children(disk, 'source');
  if ((attr(disk, 'snapshot') ?? '') !== 'external') {
    for (const source of sources) remove(source);
    return sources.length > 0 ? ['/source'] : true;
  }
  if ((attr(disk, 'type') ?? 'file') !== 'file') return false;
  const file = gate.fileAt(attr(child(disk, 'source'), 'file') ?? '', 'disk');
  if (file?.format) child(disk, 'driver')?.setAttribute('type', file.format);
  return file !== undefined;
};

/** What the original kept about itself then is not the restored one's. */
const DOMAIN_OF_STATE: Rule = {
  ...DOMAIN_RULE,
  children: new Map([
    ...DOMAIN_RULE.children,
    ['metadata', { ...el(), once: true, namespaces: [LIBOSINFO] }],
  ]),
};

export const SNAPSHOT_RULE: Rule = el('', {
  'name!': text(),
  description: text(),
  state: text(),
  'parent!': el('', { name: text() }),
  creationTime: text(),
  active: text(),
  'memory!': { ...el('snapshot=no|internal|external file/'), always: judgeMemory },
  'disks!': el('', {
    'disk*': {
      ...el('name/ snapshot=no|internal|external|manual|default type', {
        'driver!': el('type'),
        'source!': el('file/'),
      }),
      always: judgeOverlay,
    },
  }),
  'domain!': DOMAIN_OF_STATE,
  'inactiveDomain!': DOMAIN_OF_STATE,
  cookie: el('', { cpu: CPU_RULE }),
  // what a revert by libvirt itself made; the restored domain has none of it
  revertDisks: { ...el(), always: () => false },
  snapshotDeleteInProgress: el(),
});
