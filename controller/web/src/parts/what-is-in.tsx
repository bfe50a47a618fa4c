/** What a restore would make of a file, and what it would have to do without. */
import { Alert, Content } from '@patternfly/react-core';
import type { ShownBackup } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';

const MiB = 1024 * 1024;

export function WhatIsIn({ backup }: { backup: ShownBackup }) {
  const { texts, format } = useWords();
  const words = texts.restore;
  const { configuration: vm, signature, warnings } = backup;
  return (
    <section aria-label={words.content}>
      <Content component="h3">{words.content}</Content>
      <Content component="ul">
        {vm !== null && (
          <Content component="li" className="vk-name">
            {vm.verbose_name}: {texts.vm.cpus} {vm.cpu_count}, {format.size(vm.memory_count * MiB)}
          </Content>
        )}
        {(vm?.disks ?? []).map(disk => (
          <Content component="li" key={disk.id}>
            {disk.target_dev}: {format.size(disk.virtual_size)}
          </Content>
        ))}
        {signature !== null && (
          <Content component="li">
            {words.trust}: {words.trusts[signature.trust] ?? signature.trust}
          </Content>
        )}
      </Content>
      {warnings.length > 0 && (
        <Alert isInline variant="warning" title={words.warnings}>
          <ul>
            {warnings.map(warning => (
              <li key={warning.key}>{warning.text}</li>
            ))}
          </ul>
        </Alert>
      )}
    </section>
  );
}
