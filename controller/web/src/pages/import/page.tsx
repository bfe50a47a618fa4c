/** Files of others: brought in from here, and made into VMs, backups or disks. */

import { Form, FormSelect, FormSelectOption, Title } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useSearchParams } from 'react-router';
import { answer, api } from '../../api/client.ts';
import { useAllPools } from '../../parts/all.ts';
import { Field } from '../../parts/fields.tsx';
import { Empty } from '../../parts/list.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { PoolOptions } from '../../parts/pool-options.tsx';
import { rightReason } from '../../parts/reasons.ts';
import { Shown } from '../../parts/shown.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';
import { DropFiles } from './drop-files.tsx';
import { ForeignFiles } from './foreign-files.tsx';
import { ImportWizard } from './wizard.tsx';

export default function ImportPage() {
  const { texts } = useWords();
  const [params] = useSearchParams();
  const id = params.get('file') ?? '';
  const query = useQuery({
    queryKey: ['files', 'one', id],
    queryFn: () => answer(api.GET('/api/library/{id}/', { params: { path: { id } } })),
    enabled: id !== '',
  });
  return (
    <ViewPage title={texts.import.title} about={id === '' ? texts.import.about : query.data?.filename}>
      {id === '' ? (
        <BringIn />
      ) : (
        <Shown query={query}>{file => <ImportWizard key={file.id} file={file} />}</Shown>
      )}
    </ViewPage>
  );
}

function BringIn() {
  const { texts } = useWords();
  const words = texts.import;
  const reason = rightReason('library.upload', useAsked());
  const [pool, setPool] = useState('');
  const pools = useAllPools();
  return (
    <>
      <Title headingLevel="h2" className="vk-block">
        {words.upload}
      </Title>
      {reason !== undefined ? (
        <Empty title={reason} />
      ) : (
        <>
          <Form onSubmit={event => event.preventDefault()}>
            <Field id="upload-pool" label={texts.common.pool} isRequired help={words.poolHelp}>
              <FormSelect id="upload-pool" value={pool} onChange={(_event, chosen) => setPool(chosen)}>
                <FormSelectOption value="" label={texts.none} />
                <PoolOptions pools={pools.data?.results} />
              </FormSelect>
            </Field>
          </Form>
          <DropFiles pool={pool} />
        </>
      )}
      <Title headingLevel="h2" className="vk-block">
        {words.there}
      </Title>
      <ForeignFiles />
    </>
  );
}
