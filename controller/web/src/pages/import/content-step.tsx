import { Content, Form } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import { answer, api, type BackupFile, type ShownBackup } from '../../api/client.ts';
import { SelectField } from '../../parts/fields.tsx';
import { type Kind, kindsOf } from '../../parts/import-kinds.ts';
import { Shown } from '../../parts/shown.tsx';
import { WhatIsIn } from '../../parts/what-is-in.tsx';
import { useWords } from '../../texts/index.tsx';
import { type Choices, machineOf } from './choices.ts';
import type { StepProps } from './wizard.tsx';

/** What the file holds; it is read once for each choice. */
export function useShown(file: BackupFile, choices: Choices) {
  const body = { file: file.id, ...machineOf(choices), ...(choices.virtio ? { virtio: true } : {}) };
  return useQuery({
    queryKey: ['shown', body],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () => answer(api.POST('/api/domains/show-backup/', { body })),
    enabled: choices.kind !== 'disk',
    retry: false,
  });
}

/** What is made of the file, and what is in it. @param shown told whether it is known what is in it */
export function ContentStep({
  file,
  choices,
  set,
  shown,
}: StepProps & { shown: (isShown: boolean) => void }) {
  const { texts, format } = useWords();
  const words = texts.import;
  const query = useShown(file, choices);
  const isShown = query.data !== undefined && query.data.configuration !== null;
  useEffect(() => shown(isShown), [shown, isShown]);
  return (
    <Form>
      <SelectField<Kind>
        id="import-kind"
        label={words.kind}
        options={kindsOf(file).map(kind => [kind, words.kinds[kind]] as const)}
        value={choices.kind}
        change={kind => set({ kind })}
      />
      {choices.kind === 'disk' ? (
        <Content component="p">
          {file.image === null
            ? words.unknownImage
            : `${file.image.format}, ${format.size(file.image.virtual_size)}`}
        </Content>
      ) : (
        <Shown query={query}>
          {backup => (
            <>
              <Machine backup={backup} choices={choices} set={set} />
              <WhatIsIn backup={backup} />
            </>
          )}
        </Shown>
      )}
    </Form>
  );
}

/** Which of the VMs of an OVF, and in which configuration. */
function Machine({ backup, choices, set }: Pick<StepProps, 'choices' | 'set'> & { backup: ShownBackup }) {
  const { texts } = useWords();
  const words = texts.import;
  const { systems } = backup;
  const one =
    systems.find(({ id }) => id === choices.system) ?? (systems.length === 1 ? systems[0] : undefined);
  const configurations = one?.configurations ?? [];
  return (
    <>
      {systems.length > 1 && (
        <SelectField
          id="import-system"
          label={words.system}
          isRequired
          options={[
            ['', words.chooseSystem],
            ...systems.map(({ id, verbose_name }) => [id, verbose_name || id] as const),
          ]}
          value={choices.system}
          change={system => set({ system, configuration: '', networks: {} })}
        />
      )}
      {configurations.length > 0 && (
        <SelectField
          id="import-configuration"
          label={words.configuration}
          help={configurations.find(({ id }) => id === choices.configuration)?.description}
          options={[
            ['', texts.import.defaultOf(configurations.find(one => one.default)?.label ?? '')],
            ...configurations.map(({ id, label }) => [id, label || id] as const),
          ]}
          value={choices.configuration}
          change={configuration => set({ configuration })}
        />
      )}
    </>
  );
}
