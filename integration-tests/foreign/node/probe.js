// One client of a test on kafkajs: probe.js produce|consume --option value …; options stand in ../README.md.
'use strict'
const fs = require('fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [role, ...rest] = process.argv.slice(2)
const options = {}
for (let i = 0; i + 1 < rest.length; i += 2) options[rest[i].slice(2)] = rest[i + 1]
const number = (name, otherwise) => (name in options ? Number(options[name]) : otherwise)

const file = fs.openSync(options.log, 'a')
function write(event, partition = -1, offset = -1, key = null, deliveries = 0) {
  const nanos = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n
  fs.writeSync(file, [nanos, options.member, event, partition, offset, key ?? '-', deliveries].join('\t') + '\n')
}

// A small generator with a seed: kafkajs has none, and Math.random cannot be repeated.
let state = number('seed', 1) >>> 0 || 1
function below(bound) {
  state ^= state << 13
  state ^= state >>> 17
  state ^= state << 5
  return (state >>> 0) % bound
}

const kafka = new Kafka({ clientId: options.member, brokers: [options.bootstrap], logLevel: logLevel.WARN })

async function produce() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const records = number('records', 1000)
  for (let from = 0; from < records; from += 100) {
    const messages = []
    for (let i = from; i < Math.min(records, from + 100); i++) {
      const key = below(100) < number('keyless-percent', 0) ? null : 'k' + below(number('keys', 10))
      messages.push({ key, value: 'v' + i, partition: 'partition' in options ? number('partition') : undefined })
    }
    const answers = await producer.send({ topic: options.topic, messages })
    // The answer names the base offset of each partition; in one partition the records follow it in order.
    if (answers.length === 1) {
      messages.forEach((m, i) => write('produced', answers[0].partition, Number(answers[0].baseOffset) + i, m.key))
    }
  }
  await producer.disconnect()
}

async function consume() {
  const consumer = kafka.consumer({ groupId: options.group })
  await consumer.connect()
  await consumer.subscribe({ topic: options.topic, fromBeginning: true })
  let left = number('records', Infinity)
  let last = Date.now()
  let asked = false
  process.stdin.on('end', () => (asked = true)).resume()
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      write('consumed', partition, Number(message.offset), message.key && message.key.toString())
      left -= 1
      last = Date.now()
    },
  })
  while (!asked && left > 0 && Date.now() - last < number('idle-ms', 60000)) {
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  await consumer.disconnect()
}

async function main() {
  if (role === 'produce') await produce()
  else if (role === 'consume') await consume()
  else throw new Error('usage: probe.js produce|consume --option value …')
  write('end')
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
