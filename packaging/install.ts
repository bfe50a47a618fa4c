/** Installs below the given directory. usage: install.ts ROOT; settings files that exist there are kept. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { stage } from './stage.ts';

const target = resolve(process.argv[2] ?? '/');
const root = mkdtempSync(join(tmpdir(), 'virtkeep-install-'));
try {
  stage(root);
  for (const name of ['agent.yaml', 'controller.yaml']) {
    const path = join('etc', 'virtkeep', name);
    if (existsSync(join(target, path))) rmSync(join(root, path));
  }
  cpSync(root, target, { recursive: true, verbatimSymlinks: true, force: true });
} finally {
  rmSync(root, { recursive: true, force: true });
}
if (target === '/' && existsSync('/run/systemd/system')) {
  execFileSync('systemd-sysusers', ['/usr/lib/sysusers.d/virtkeep.conf']);
  execFileSync('systemctl', ['daemon-reload']);
}
process.stdout.write(`install: files are below ${target}; enable virtkeep-agent or virtkeep-controller\n`);
