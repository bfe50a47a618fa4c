/**
 * What must be there before an effect can be undone. Without it a file "that is not there" would count as removed, and a
 * domain that is not told of as gone.
 */
import type { Effect } from '../effect.ts';

export interface EffectNeeds {
  /** libvirt; once it can be reached, it has also started all domains that it starts by itself. */
  libvirt: boolean;
  /** The other nodes, if they can be asked: what it does is right only while none of them has the VM. */
  otherNodes: boolean;
  /** Domains whose images are looked at: the pools that hold their disks. */
  domains: readonly string[];
  /** Files that are looked at: the pools that hold them. */
  paths: readonly string[];
}

const needs = (part: Partial<EffectNeeds>): EffectNeeds => ({
  libvirt: (part.domains ?? []).length > 0,
  otherNodes: false,
  domains: [],
  paths: [],
  ...part,
});

const OF_TYPE: { [T in Effect['type']]: (effect: Extract<Effect, { type: T }>) => EffectNeeds } = {
  frozen_guest: () => needs({ libvirt: true }),
  paused_guest: () => needs({ libvirt: true }),
  domain: () => needs({ libvirt: true }),
  automatic_state: ({ domainId, overlays, memoryPath }) =>
    needs({
      domains: [domainId],
      paths: [...overlays.map(({ path }) => path), ...(memoryPath === undefined ? [] : [memoryPath])],
    }),
  // the owner of one from another node is not here
  loan: ({ ownerId }) => needs({ libvirt: true, domains: ownerId === '' ? [] : [ownerId] }),
  attached_disk: ({ path }) => needs({ libvirt: true, paths: [path] }),
  removed_state: ({ domainId }) => needs({ domains: [domainId] }),
  revert: ({ domainId, overlays, formerOverlays, wasRunning }) =>
    needs({
      otherNodes: wasRunning,
      domains: [domainId],
      paths: [...overlays.map(({ path }) => path), ...Object.values(formerOverlays)],
    }),
  unused_layers: ({ domainId, paths }) => needs({ domains: [domainId], paths }),
  appended_archive: ({ path, tailPath }) => needs({ paths: [path, tailPath] }),
  archive: ({ partialPath, finalPath }) => needs({ paths: [partialPath, finalPath] }),
  reserved_name: ({ path }) => needs({ paths: [path] }),
  replaced_archive: ({ path, by }) => needs({ paths: [path, by] }),
  trimmed_archive: ({ path, by }) => needs({ paths: [path, by] }),
  file: ({ path }) => needs({ paths: [path] }),
  directory: ({ path }) => needs({ paths: [path] }),
  instant_pull: ({ domainId, archivePath, disks }) =>
    needs({ domains: [domainId], paths: [archivePath, ...disks.map(({ overlayPath }) => overlayPath)] }),
  archive_access: ({ path }) => needs({ paths: [path] }),
  changed_disks: ({ domainId, paths }) =>
    needs({ libvirt: true, domains: domainId === undefined ? [] : [domainId], paths }),
  template_change: ({ templateId, cloneIds, files }) =>
    needs({ domains: [templateId, ...cloneIds], paths: files.flatMap(({ from, to }) => [from, to]) }),
  renamed_domain: () => needs({ libvirt: true }),
  guest_packages: () => needs({}),
  guest_name: () => needs({}),
  guest_change: () => needs({}),
  backup_hook: () => needs({}),
  orphaned_files: ({ paths }) => needs({ libvirt: true, paths }),
};

/** What undoing an effect needs. */
export function needsOf(effect: Effect): EffectNeeds {
  return (OF_TYPE[effect.type] as (effect: Effect) => EffectNeeds)(effect);
}
