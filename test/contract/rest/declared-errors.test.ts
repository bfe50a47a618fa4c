/** What the workflows of the agent throw is what the calls that start them say: read from the sources, since no test meets every error. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type ApiDocument, declaredKeys, operationsOf } from './api-document.ts';
import { makeRestApp, type RestApp } from './app.ts';

const AGENT = fileURLToPath(new URL('../../../agent/src/', import.meta.url));
const THROWN = /new VirtkeepError\(\s*'(\w+)'/g;
/** What is imported for its types alone runs nothing. */
const IMPORTED = /^(?:import|export) (?!type )[^;]*? from '(\.[^']+)';/gm;

/** The recipe of each call, below `agent/src/workflows`. */
const RECIPES: Readonly<Record<string, readonly string[]>> = {
  domains_backup: ['backup/backup.ts'],
  domains_automated_restore: [
    ...['restore/restore.ts', 'restore/instant/instant-restore.ts', 'import/appliance-restore.ts'],
  ],
  domains_show_backup: [
    'files/show-backup.ts',
    'config-restore/show-definition.ts',
    'import-disk/show-image.ts',
  ],
  domains_config_restore: ['config-restore/config-restore.ts'],
  domains_import_disk: ['import-disk/import-disk.ts'],
  domains_update: ['domain/rename-domain.ts'],
  domains_start: ['domain/power.ts'],
  domains_remove: ['domain/remove-domain.ts'],
  domains_clone: ['template/clone.ts'],
  domains_change_template: ['template/change.ts'],
  domains_snapshots_create: ['snapshot/create.ts'],
  domains_snapshots_remove: ['snapshot/remove.ts'],
  domains_snapshots_revert: ['snapshot/revert.ts'],
  domains_attach_vdisk: ['lend/attach.ts'],
  domains_detach_vdisk: ['lend/detach.ts'],
  domains_set_hostname: ['guest/hostname.ts'],
  domains_add_to_ad: ['guest/directory.ts'],
  domains_rm_from_ad: ['guest/directory.ts'],
  domains_ssh_keys_create: ['guest/ssh-keys.ts'],
  domains_ssh_keys_remove: ['guest/ssh-keys.ts'],
  domains_sysprep: ['guest/sysprep.ts'],
  domains_prepare: ['guest/prepare.ts'],
  domains_attach_guest_tools_iso: ['guest/tools.ts'],
  domains_detach_guest_tools_iso: ['guest/tools.ts'],
  library_compress: ['files/recompress.ts'],
  library_unpack: ['files/recompress.ts'],
  library_trim: ['restore-points/trim.ts'],
  library_convert_backup: ['import/convert.ts'],
  domains_convert_backup: ['import/convert.ts'],
  library_export: ['export/export.ts'],
  library_verify: ['files/verify.ts'],
  library_remove: ['files/delete-backup.ts'],
  library_download_get: ['files/download.ts'],
  data_pools_scan: ['files/scan-pool.ts'],
};

let rest: RestApp;
let declared: Map<string, Set<string>>;

beforeAll(async () => {
  rest = await makeRestApp();
  const document = rest.app.swagger() as unknown as ApiDocument;
  declared = new Map(
    operationsOf(document).map(({ spec }) => [
      spec.operationId!,
      new Set(Object.keys(spec.responses).flatMap(status => declaredKeys(spec, Number(status)))),
    ]),
  );
});
afterAll(() => rest.close());

/** The files of the agent's workflows that run with this one. */
function filesOf(file: string, known = new Set<string>()): Set<string> {
  if (known.has(file)) return known;
  known.add(file);
  for (const [, path = ''] of readFileSync(file, 'utf8').matchAll(IMPORTED)) {
    const imported = join(dirname(file), path);
    if (imported.startsWith(join(AGENT, 'workflows'))) filesOf(imported, known);
  }
  return known;
}

test.each(Object.entries(RECIPES))('%s says what its recipe throws', (operation, recipes) => {
  const files = new Set(recipes.flatMap(recipe => [...filesOf(join(AGENT, 'workflows', recipe))]));
  const thrown = new Set(
    [...files].flatMap(file => [...readFileSync(file, 'utf8').matchAll(THROWN)].map(([, key]) => key!)),
  );
  expect([...thrown].filter(key => !declared.get(operation)?.has(key))).toEqual([]);
});
