/** Builds dist/virtkeep_<version>_<arch>.deb. */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundle } from './bundle.ts';
import { ROOT, stage } from './stage.ts';
import { buildPages } from './web.ts';

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
const arch = execFileSync('dpkg', ['--print-architecture'], { encoding: 'utf8' }).trim();
await bundle();
await buildPages();
const root = mkdtempSync(join(tmpdir(), 'virtkeep-deb-'));
try {
  chmodSync(root, 0o755);
  stage(root);
  // whatever the umask of this shell: an installed file can be read, a directory entered
  execFileSync('chmod', ['-R', 'u+rwX,go+rX,go-w', root]);
  writeControl();
  const out = join(ROOT, 'dist', `virtkeep_${version}_${arch}.deb`);
  mkdirSync(join(ROOT, 'dist'), { recursive: true });
  execFileSync('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z9', '--build', root, out], {
    stdio: 'ignore',
  });
  process.stdout.write(`package: ${out}\n`);
} finally {
  rmSync(root, { recursive: true, force: true });
}

function writeControl(): void {
  const sizeKiB = execFileSync('du', ['-sk', root], { encoding: 'utf8' }).split('\t')[0]!;
  const template = readFileSync(join(ROOT, 'packaging', 'debian', 'control.in'), 'utf8');
  const control = template.replace('@VERSION@', version).replace('@ARCH@', arch).replace('@SIZE@', sizeKiB);
  const target = join(root, 'DEBIAN');
  mkdirSync(target, { mode: 0o755 });
  for (const name of ['postinst', 'prerm', 'postrm', 'conffiles']) {
    cpSync(join(ROOT, 'packaging', 'debian', name), join(target, name));
  }
  writeFileSync(join(target, 'control'), control, { mode: 0o644 });
}
