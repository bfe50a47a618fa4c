/** From a file of others to a VM, a backup, a definition or a disk, step by step. */
import { Alert, Content } from '@patternfly/react-core';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import { AT_ONCE, api, type BackupFile, begun, newKey } from '../../api/client.ts';
import { faultsOf } from '../../parts/fields.tsx';
import { kindsOf } from '../../parts/import-kinds.ts';
import { Failure } from '../../parts/shown.tsx';
import { Steps } from '../../parts/steps.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useWords } from '../../texts/index.tsx';
import { type Choices, configBody, convertBody, diskBody, firstChoices, restoreBody } from './choices.ts';
import { ContentStep } from './content-step.tsx';
import { OptionsStep } from './options-step.tsx';
import { TargetStep } from './target-step.tsx';

export interface StepProps {
  file: BackupFile;
  choices: Choices;
  set: (changes: Partial<Choices>) => void;
  fault: (field: string) => string | undefined;
}

export function ImportWizard({ file }: { file: BackupFile }) {
  const { texts } = useWords();
  const words = texts.import;
  const navigate = useNavigate();
  const { started } = useToasts();
  const [choices, setChoices] = useState(() => firstChoices(file));
  const [isShown, setShown] = useState(false);
  const [key] = useState(newKey);
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  if (kindsOf(file).length === 0) return <Alert isInline variant="warning" title={words.nothing} />;
  const set = (changes: Partial<Choices>) => setChoices(before => ({ ...before, ...changes }));
  const start = async () => {
    setBusy(true);
    try {
      started(await begin(file.id, choices, key));
      await navigate('/tasks');
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  const step = { file, choices, set, fault: faultsOf(error) };
  const isPlaced = choices.kind === 'backup' || choices.node !== '';
  const isNamed = choices.kind !== 'disk' || choices.verbose_name !== '';
  return (
    <Steps
      label={words.title}
      submit={words.start[choices.kind]}
      isBusy={isBusy}
      act={() => void start()}
      cancel={() => void navigate(-1)}
      steps={[
        {
          key: 'content',
          name: words.content,
          isReady: isShown || choices.kind === 'disk',
          content: <ContentStep {...step} shown={setShown} />,
        },
        {
          key: 'target',
          name: texts.restore.target,
          isReady: isPlaced && isNamed,
          content: <TargetStep {...step} />,
        },
        { key: 'options', name: texts.backup.options, isReady: true, content: <OptionsStep {...step} /> },
        {
          key: 'review',
          name: texts.restore.review,
          isReady: true,
          content: (
            <>
              {error !== undefined && <Failure error={error} />}
              <Content component="p">{words.said(file.filename, words.kinds[choices.kind])}</Content>
              <Content component="p">{choices.verbose_name}</Content>
            </>
          ),
        },
      ]}
    />
  );
}

function begin(id: string, choices: Choices, idempotency_key: string) {
  const params = { query: AT_ONCE };
  switch (choices.kind) {
    case 'vm':
      return begun(
        api.POST('/api/domains/automated-restore/', {
          params,
          body: { ...restoreBody(id, choices), idempotency_key },
        }),
      );
    case 'backup':
      return begun(
        api.POST('/api/library/{id}/convert-backup/', {
          params: { ...params, path: { id } },
          body: { ...convertBody(choices), idempotency_key },
        }),
      );
    case 'config':
      return begun(
        api.POST('/api/domains/config-restore/', {
          params,
          body: { ...configBody(id, choices), idempotency_key },
        }),
      );
    case 'disk':
      return begun(
        api.POST('/api/domains/import-disk/', {
          params,
          body: { ...diskBody(id, choices), idempotency_key },
        }),
      );
  }
}
