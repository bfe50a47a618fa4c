import { Form } from '@patternfly/react-core';
import { CheckField, SelectField, TextField } from '../../parts/fields.tsx';
import type { Kind } from '../../parts/import-kinds.ts';
import { useWords } from '../../texts/index.tsx';
import { IMAGE_FORMATS } from './choices.ts';
import { useShown } from './content-step.tsx';
import type { StepProps } from './wizard.tsx';

const FLAGS = {
  virtio: ['vm', 'backup', 'config', 'disk'],
  inject_drivers: ['vm', 'backup'],
  exclude_iso: ['vm', 'backup'],
  keep_macs: ['vm', 'config'],
  start_on: ['vm'],
  compress: ['backup'],
  hash_sum: ['backup'],
} as const satisfies Record<string, readonly Kind[]>;

/** Networks of the file by those of the node, and what becomes of its devices. */
export function OptionsStep({ file, choices, set, fault }: StepProps) {
  const { texts } = useWords();
  const words = texts.import;
  const networks = useShown(file, choices).data?.networks ?? [];
  const labels = {
    virtio: words.virtio,
    inject_drivers: words.injectDrivers,
    exclude_iso: texts.backup.noIso,
    keep_macs: words.keepMacs,
    start_on: texts.restore.start,
    compress: texts.backup.compress,
    hash_sum: texts.backup.hash,
  };
  const offered = (Object.keys(FLAGS) as (keyof typeof FLAGS)[]).filter(flag =>
    (FLAGS[flag] as readonly Kind[]).includes(choices.kind),
  );
  return (
    <Form>
      {choices.kind !== 'disk' &&
        networks.map((network, index) => (
          <TextField
            key={network}
            id={`import-network-${index}`}
            label={words.networkOf(network)}
            help={words.mappingHelp}
            maxLength={255}
            value={choices.networks[network] ?? ''}
            error={fault('networks')}
            change={here => set({ networks: { ...choices.networks, [network]: here } })}
          />
        ))}
      {choices.kind === 'disk' && (
        <>
          <SelectField
            id="import-format"
            label={words.format}
            options={['', ...IMAGE_FORMATS].map(one => [one, one || words.byName] as const)}
            value={choices.format}
            error={fault('format')}
            change={format => set({ format })}
          />
          <SelectField
            id="import-bus"
            label={words.bus}
            options={(['virtio', 'scsi', 'sata'] as const).map(bus => [bus, bus] as const)}
            value={choices.target_bus}
            error={fault('target_bus')}
            change={target_bus => set({ target_bus })}
          />
        </>
      )}
      {offered.map(flag => (
        <CheckField
          key={flag}
          id={`import-${flag}`}
          label={labels[flag]}
          error={fault(flag)}
          isDisabled={flag === 'inject_drivers' && !choices.virtio}
          isOn={choices[flag]}
          change={on => set({ [flag]: on })}
        />
      ))}
    </Form>
  );
}
