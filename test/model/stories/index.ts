/**
 * The stories of the model, and what they cover. A new workflow that declares effects needs a story; a new kind of effect needs
 * one that declares it (CONTRIBUTING.md). `undo.test.ts` fails, or the type check does, when one is forgotten.
 */
import type { Effect } from '../../../agent/src/workflows/effect.ts';
import type { BuildStory } from '../undo-model.ts';
import { applianceRestore, convertAll } from './appliance-restore.ts';
import { extendOtherwise, fullBackup, increment } from './backup.ts';
import { configRestore } from './config-restore.ts';
import { convertForeign } from './convert.ts';
import { exportBackup } from './export.ts';
import { recompress, removal, trim } from './files.ts';
import { guestChange } from './guest-change.ts';
import { importFurther, importNew } from './import-disk.ts';
import { instantRestore } from './instant.ts';
import { newIso } from './iso.ts';
import { join } from './join.ts';
import { attach, detach, lendAway, reconcileLoans } from './lending.ts';
import { revertMemory } from './memory-state.ts';
import { offline, offlineOfBefore } from './offline.ts';
import { rename } from './rename.ts';
import { restoreInPlace, restoreNew } from './restore.ts';
import { createState, removeState, revert } from './states.ts';
import { changeTemplate, clone } from './template.ts';
import { zfsInstant } from './zfs.ts';

export const STORIES = {
  ...{ revert, createState, removeState, offline, offlineOfBefore, fullBackup, increment, recompress },
  ...{ extendOtherwise, trim, configRestore, convertForeign, applianceRestore, convertAll, exportBackup },
  ...{ importNew, importFurther, revertMemory },
  ...{ restoreNew, restoreInPlace, instantRestore, clone, changeTemplate, removal, rename, newIso },
  ...{ attach, detach, lendAway, reconcileLoans, zfsInstant, join, guestChange },
} satisfies Record<string, BuildStory>;

export type StoryName = keyof typeof STORIES;

/** The story of each workflow that declares effects, by the name of the function that makes it. */
export const STORY_OF: Readonly<Record<string, readonly StoryName[]>> = {
  revertSnapshotWorkflow: ['revert', 'revertMemory'],
  createSnapshotWorkflow: ['createState'],
  removeSnapshotWorkflow: ['removeState'],
  // what each of them does on the disks is `change`; all else of them is changeOffline
  setHostnameOffline: ['offline'],
  changeSshKeysOffline: ['offline'],
  prepare: ['offline'],
  joinDirectory: ['join', 'guestChange'],
  leaveDirectory: ['guestChange'],
  setHostname: ['guestChange'],
  sysprep: ['guestChange'],
  backupWorkflow: ['fullBackup', 'increment', 'extendOtherwise'],
  recompressWorkflow: ['recompress'],
  trimWorkflow: ['trim'],
  restoreWorkflow: ['restoreNew', 'restoreInPlace'],
  instantRestoreWorkflow: ['instantRestore'],
  configRestoreWorkflow: ['configRestore'],
  convertBackupWorkflow: ['convertForeign'],
  convertAllWorkflow: ['convertAll'],
  applianceRestoreWorkflow: ['applianceRestore'],
  exportBackupWorkflow: ['exportBackup'],
  importDiskWorkflow: ['importNew', 'importFurther'],
  cloneWorkflow: ['clone'],
  changeTemplateWorkflow: ['changeTemplate'],
  removeDomain: ['removal'],
  renameDomain: ['rename'],
  uploadIso: ['newIso'],
  attachDiskWorkflow: ['attach'],
  detachDiskWorkflow: ['detach'],
  lendDiskWorkflow: ['lendAway'],
  returnDiskWorkflow: ['lendAway'],
  reconcileLoansWorkflow: ['reconcileLoans'],
};

/** Workflows that declare nothing, since nothing of them can be undone or is to be. */
export const WITHOUT_EFFECTS: readonly string[] = [
  // they read
  ...['verifyWorkflow', 'scanPool', 'refreshBackupWorkflow'],
  // what it makes outlives it, and stands in the upload's own record (`workflows/files/upload/uploads.test.ts`)
  'uploadFile',
  // one call that happens or does not
  ...['setPower', 'attachTools', 'detachTools', 'deleteBackupWorkflow'],
  // inside of a guest that runs
  'changeSshKeys',
];

/** By each kind of effect the stories that declare it. */
export const DECLARED_IN: Readonly<Record<Effect['type'], readonly StoryName[]>> = {
  frozen_guest: [
    'createState',
    'fullBackup',
    'increment',
    'attach',
    'lendAway',
    'zfsInstant',
    'extendOtherwise',
  ],
  paused_guest: ['zfsInstant'],
  automatic_state: [
    'createState',
    'offline',
    'fullBackup',
    'increment',
    'attach',
    'lendAway',
    'extendOtherwise',
  ],
  loan: ['attach', 'detach', 'lendAway', 'reconcileLoans'],
  removed_state: ['removeState', 'fullBackup', 'increment', 'reconcileLoans'],
  revert: ['revert', 'revertMemory'],
  unused_layers: ['revert', 'revertMemory'],
  appended_archive: ['increment', 'extendOtherwise'],
  archive: ['fullBackup', 'recompress', 'extendOtherwise', 'trim', 'convertForeign', 'convertAll'],
  reserved_name: [
    'fullBackup',
    'recompress',
    'extendOtherwise',
    'trim',
    'convertForeign',
    'convertAll',
    'exportBackup',
  ],
  replaced_archive: ['recompress', 'extendOtherwise'],
  trimmed_archive: ['trim'],
  file: [
    'revert',
    'revertMemory',
    'increment',
    'restoreNew',
    'restoreInPlace',
    'instantRestore',
    'clone',
    'changeTemplate',
    'extendOtherwise',
    'trim',
    'newIso',
    'convertForeign',
    'applianceRestore',
    'convertAll',
    'exportBackup',
    'importNew',
    'importFurther',
  ],
  attached_disk: ['importFurther'],
  directory: ['offline', 'exportBackup'],
  domain: [
    'restoreNew',
    'restoreInPlace',
    'instantRestore',
    'clone',
    'configRestore',
    'applianceRestore',
    'importNew',
  ],
  instant_pull: ['instantRestore'],
  archive_access: ['instantRestore'],
  changed_disks: ['offlineOfBefore'],
  template_change: ['changeTemplate'],
  renamed_domain: ['rename'],
  guest_packages: ['join'],
  guest_name: ['join'],
  guest_change: ['join', 'guestChange'],
  orphaned_files: ['removal'],
  backup_hook: ['fullBackup'],
};
