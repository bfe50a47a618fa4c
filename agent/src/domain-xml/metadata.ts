/**
 * What virtkeep itself keeps in a domain's `<metadata>`, in an element of its own namespace, so that it goes wherever
 * the domain's definition goes (the node is the truth; losing every database loses none of it).
 */

import { isUuid } from '@virtkeep/shared/ids';
import { DOMParser, type Document, type Element } from '@xmldom/xmldom';
import { attr, children, ensureChild, pathAttr, remove } from './dom.ts';
import { serializeXml } from './safe-xml.ts';

export const METADATA_NAMESPACE = 'urn:virtkeep:domain:1';
/** Prefix of the element; also the `key` of libvirt's metadata calls. */
export const METADATA_PREFIX = 'virtkeep';

export interface DomainMetadata {
  template: boolean;
  /** Grows with each change of the template's disks; 0 when it was never a template. */
  templateVersion: number;
  /** The template a thin clone stands on, and the version it was cloned from. */
  parent?: { id: string; version: number };
  /** Disks of other domains attached to this one (spec 4.1). */
  attachments: Attachment[];
  /** Disks of this domain that others have; one per disk and borrower. */
  loans?: Loan[];
  /** When a saved state was last deleted or reverted to, by whomever: no archive of before can be extended. */
  statesDeleted?: Date;
  /**
   * Ids of the states that virtkeep itself took away last, oldest first, whether that counted as a deletion or not: the
   * inventory does not take their disappearance for a deletion behind our back.
   */
  removedStates?: string[];
  /** Layers that a state kept which is deleted by now, and which are still to be merged or have several readers. */
  looseLayers?: LooseLayer[];
  /** The layers that the state of lent disks put on this domain's disks, until they are gone. */
  lentLayers?: LentLayer[];
}

/** A layer that a domain writes to while the file below it is lent. */
export interface LentLayer {
  path: string;
  /** The file that it was put on. */
  below: string;
  /** That file as it was then, or as a merge below it has left it: inode, size and time. */
  mark: string;
  /** A merge lets it stand on another file, so that a change of it since may be that. */
  moving?: true;
}

/** A frozen layer that no saved state asks for any more. */
export interface LooseLayer {
  targetDev: string;
  path: string;
  /** It stands on another file itself; a disk's first file is never removed. */
  overlay: boolean;
  /** The layer right above it that is being merged into it; when nobody stands on that any more, its file goes. */
  merging?: string;
  /** How far that merge is known to be. Absent when an earlier version noted it: then whoever has the lower file in place has merged. */
  stage?: MergeStage;
  /** The file that stood on `merging` when QEMU began a merge below the top: it stands on `path` when that is done. */
  reader?: string;
}

/**
 * `begun`: only the upper file is sure to have what was written last, whatever a definition names.
 * `live`: the same, in the metadata of the running domain alone: this run of it began the merge, so only the end of the merge
 * can have put the lower file on its disk. A definition never has it, since the next start may be of another disk.
 * `merged`: the lower file has everything.
 */
export type MergeStage = 'begun' | 'live' | 'merged';

/** What is true of the domain's next start, too. */
export function lastingMetadata(metadata: DomainMetadata): DomainMetadata {
  if (!metadata.looseLayers) return metadata;
  const looseLayers = metadata.looseLayers.map(
    (layer): LooseLayer => (layer.stage === 'live' ? { ...layer, stage: 'begun' } : layer),
  );
  return { ...metadata, looseLayers };
}

/** Further states in `removedStates` are forgotten, oldest first; the inventory looks far more often. */
const MAX_REMOVED_STATES = 32;

export interface Attachment {
  /** UUID of the original disk. */
  diskId: string;
  /** UUID of the domain that owns it. */
  ownerId: string;
  /** Id of the attached object: a frozen layer, or a clone. */
  attachedId: string;
  /** Where it is on this domain. */
  targetDev: string;
  /** The file attached: a frozen layer, or a clone. */
  path: string;
  /** Attached as the thin clone's disk, not the template's. */
  thinClone: boolean;
  /** It was asked to go, and the guest did not let go yet. */
  detaching?: true;
  /** The attached object is a clone (on zfs) with an id of its own, which detaching by that id keeps. */
  clone?: true;
  /** Its clone is to stay when it goes: it was named by the clone's id. */
  keepClone?: true;
}

/** A disk of this domain that another one has. */
export interface Loan {
  /** UUID of the original disk. */
  diskId: string;
  borrowerId: string;
  /** Id of the borrower's node when that is another one. */
  borrowerNodeId?: string;
  /** Only with borrowerNodeId: another one each time that the disk is lent. What was concluded of an earlier loan does not end a later one. */
  mark?: string;
  /** The borrower has it no more, but its clone (on zfs) was kept and holds the state. */
  cloneKept?: true;
}

export const NO_METADATA: DomainMetadata = { template: false, templateVersion: 0, attachments: [] };

/** Reads the element from a `<domain>`; what is absent or malformed in it counts as not set. */
export function readMetadata(domain: Element): DomainMetadata {
  const own = findOwn(domain);
  if (!own) return { ...NO_METADATA, attachments: [] };
  const inner = (name: string) => children(own).filter(element => element.localName === name);
  const parent = inner('parent')[0];
  const parentId = attr(parent, 'id');
  return {
    template: attr(own, 'template') === 'yes',
    templateVersion: count(attr(own, 'version')),
    ...(parentId && isUuid(parentId)
      ? { parent: { id: parentId, version: count(attr(parent, 'version')) } }
      : {}),
    attachments: inner('attachment').flatMap(readAttachment),
    ...readLoans(inner('loan')),
    ...readStates(own, inner),
  };
}

function readStates(own: Element, inner: (name: string) => Element[]): Partial<DomainMetadata> {
  const deleted = new Date(attr(own, 'states-deleted') ?? Number.NaN);
  const removed = inner('removed-state').flatMap(element => attr(element, 'id') ?? []);
  const loose = inner('loose-layer').flatMap(readLooseLayer);
  const lent = inner('lent-layer').flatMap(readLentLayer);
  return {
    ...(Number.isNaN(deleted.getTime()) ? {} : { statesDeleted: deleted }),
    ...(removed.length > 0 ? { removedStates: removed } : {}),
    ...(loose.length > 0 ? { looseLayers: loose } : {}),
    ...(lent.length > 0 ? { lentLayers: lent } : {}),
  };
}

function readLentLayer(element: Element): LentLayer[] {
  const [path, below] = [pathAttr(element, 'path'), pathAttr(element, 'below')];
  const mark = attr(element, 'mark');
  if (!path || !below || !mark || !MARK.test(mark)) return [];
  return [{ path, below, mark, ...(attr(element, 'moving') === 'yes' ? { moving: true } : {}) }];
}

const MARK = /^\d{1,20}:\d{1,20}:\d{1,20}$/;

function readLooseLayer(element: Element): LooseLayer[] {
  const [targetDev, path] = [attr(element, 'target'), pathAttr(element, 'path')];
  if (!targetDev || !path) return [];
  const layer = { targetDev, path, overlay: attr(element, 'overlay') === 'yes' };
  const merging = pathAttr(element, 'merging');
  if (!merging) return [layer];
  const stage = STAGES.find(candidate => candidate === attr(element, 'stage'));
  const reader = pathAttr(element, 'reader');
  return [{ ...layer, merging, ...(stage ? { stage } : {}), ...(reader ? { reader } : {}) }];
}

const STAGES: readonly MergeStage[] = ['begun', 'live', 'merged'];

/**
 * The element's text for libvirt's SetMetadata (without prefix: libvirt adds `METADATA_PREFIX`), or null when there is
 * nothing to keep and the element is to be removed.
 */
export function metadataElement(metadata: DomainMetadata): string | null {
  if (isEmpty(metadata)) return null;
  const document = new DOMParser().parseFromString('<domain/>', 'text/xml');
  fill(document.documentElement!, metadata, name => document.createElement(name));
  return serializeXml(document.documentElement!);
}

/** Writes the element into a `<domain>` tree, in place of the one that is there. */
export function writeMetadata(document: Document, domain: Element, metadata: DomainMetadata): void {
  const old = findOwn(domain);
  if (old) remove(old);
  if (isEmpty(metadata)) return;
  const holder = ensureChild(domain, 'metadata', children(domain, 'memory')[0]);
  const make = (name: string) => document.createElementNS(METADATA_NAMESPACE, `${METADATA_PREFIX}:${name}`);
  const own = make('domain');
  fill(own, metadata, make);
  holder.appendChild(own);
}

function findOwn(domain: Element): Element | undefined {
  const holder = children(domain, 'metadata')[0];
  if (!holder) return undefined;
  return children(holder).find(
    element => element.namespaceURI === METADATA_NAMESPACE && element.localName === 'domain',
  );
}

function isEmpty(metadata: DomainMetadata): boolean {
  return (
    !metadata.template &&
    metadata.templateVersion === 0 &&
    !metadata.parent &&
    metadata.attachments.length === 0 &&
    !metadata.loans?.length &&
    !metadata.statesDeleted &&
    !metadata.removedStates?.length &&
    !metadata.looseLayers?.length &&
    !metadata.lentLayers?.length
  );
}

function fill(own: Element, metadata: DomainMetadata, make: (name: string) => Element): void {
  if (metadata.template) own.setAttribute('template', 'yes');
  if (metadata.templateVersion > 0) own.setAttribute('version', String(metadata.templateVersion));
  if (metadata.parent) {
    const parent = make('parent');
    parent.setAttribute('id', metadata.parent.id);
    parent.setAttribute('version', String(metadata.parent.version));
    own.appendChild(parent);
  }
  for (const attachment of metadata.attachments) {
    const element = make('attachment');
    element.setAttribute('disk', attachment.diskId);
    element.setAttribute('owner', attachment.ownerId);
    element.setAttribute('attached', attachment.attachedId);
    element.setAttribute('target', attachment.targetDev);
    element.setAttribute('path', attachment.path);
    if (attachment.thinClone) element.setAttribute('thin-clone', 'yes');
    if (attachment.clone) element.setAttribute('clone', 'yes');
    if (attachment.detaching) element.setAttribute('detaching', 'yes');
    if (attachment.keepClone) element.setAttribute('keep-clone', 'yes');
    own.appendChild(element);
  }
  for (const { diskId, borrowerId, borrowerNodeId, mark, cloneKept } of metadata.loans ?? []) {
    const element = make('loan');
    element.setAttribute('disk', diskId);
    element.setAttribute('borrower', borrowerId);
    if (borrowerNodeId) element.setAttribute('borrower-node', borrowerNodeId);
    if (mark) element.setAttribute('mark', mark);
    if (cloneKept) element.setAttribute('clone-kept', 'yes');
    own.appendChild(element);
  }
  fillStates(own, metadata, make);
}

function fillStates(own: Element, metadata: DomainMetadata, make: (name: string) => Element): void {
  if (metadata.statesDeleted) own.setAttribute('states-deleted', metadata.statesDeleted.toISOString());
  for (const id of metadata.removedStates?.slice(-MAX_REMOVED_STATES) ?? []) {
    const element = make('removed-state');
    element.setAttribute('id', id);
    own.appendChild(element);
  }
  for (const { targetDev, path, overlay, merging, stage, reader } of metadata.looseLayers ?? []) {
    const element = make('loose-layer');
    element.setAttribute('target', targetDev);
    element.setAttribute('path', path);
    if (overlay) element.setAttribute('overlay', 'yes');
    if (merging) element.setAttribute('merging', merging);
    if (stage) element.setAttribute('stage', stage);
    if (reader) element.setAttribute('reader', reader);
    own.appendChild(element);
  }
  for (const { path, below, mark, moving } of metadata.lentLayers ?? []) {
    const element = make('lent-layer');
    element.setAttribute('path', path);
    element.setAttribute('below', below);
    element.setAttribute('mark', mark);
    if (moving) element.setAttribute('moving', 'yes');
    own.appendChild(element);
  }
}

function readAttachment(element: Element): Attachment[] {
  const [diskId, ownerId] = [attr(element, 'disk'), attr(element, 'owner')];
  const [targetDev, path] = [attr(element, 'target'), pathAttr(element, 'path')];
  if (!diskId || !ownerId || !targetDev || !path) return [];
  return [
    {
      diskId,
      ownerId,
      attachedId: attr(element, 'attached') ?? diskId,
      targetDev,
      path,
      thinClone: attr(element, 'thin-clone') === 'yes',
      ...(attr(element, 'clone') === 'yes' ? { clone: true } : {}),
      ...(attr(element, 'detaching') === 'yes' ? { detaching: true } : {}),
      ...(attr(element, 'keep-clone') === 'yes' ? { keepClone: true } : {}),
    },
  ];
}

function readLoans(elements: Element[]): Pick<DomainMetadata, 'loans'> {
  const loans = elements.flatMap((element): Loan[] => {
    const [diskId, borrowerId] = [attr(element, 'disk'), attr(element, 'borrower')];
    const [borrowerNodeId, mark] = [attr(element, 'borrower-node'), attr(element, 'mark')];
    if (!diskId || !borrowerId) return [];
    const kept = attr(element, 'clone-kept') === 'yes';
    return [
      {
        diskId,
        borrowerId,
        ...(borrowerNodeId ? { borrowerNodeId } : {}),
        ...(mark ? { mark } : {}),
        ...(kept ? { cloneKept: true } : {}),
      },
    ];
  });
  return loans.length > 0 ? { loans } : {};
}

function count(value: string | undefined): number {
  return value && /^\d{1,9}$/.test(value) ? Number(value) : 0;
}
